// Everything that reads what others wrote, each as a function of bytes: for libFuzzer (fuzz_main.cpp, scripts/fuzz) and
// for the replay of the corpus in every test run (corpus_test.cpp).
//
// A target must neither crash nor break its properties; it aborts when one does not hold.
#pragma once

#include <string_view>
#include <vector>

namespace hvd::fuzz {

struct Target {
  const char* name;  // its inputs are in tests/fuzz/corpus/NAME
  void (*run)(std::string_view input);
};

const std::vector<Target>& targets();

}  // namespace hvd::fuzz
