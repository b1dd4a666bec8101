// Seeds: inputs of the corpus that are messages of ours, made by what writes them, so that the fuzz targets begin with
// messages as they are today. corpus_test.cpp compares them with the files, and writes them where it is asked to.
#pragma once

#include <string>
#include <vector>

namespace hvd::fuzz {

struct Seed {
  std::string path;  // below the corpus: TARGET/NAME
  std::string bytes;
};

// One of each kind of message, with every field that it can have.
std::vector<Seed> seeds();

}  // namespace hvd::fuzz
