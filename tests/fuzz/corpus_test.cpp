// Replays the corpus of all fuzz targets: as it is, cut short, and with single bytes changed. Finds nothing new, and
// keeps what was found found.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/fuzz/targets.h"

namespace {

constexpr const char* kCorpus = "tests/fuzz/corpus";  // run from the checkout's root
constexpr int kChanges = 200;                         // of each input

std::vector<std::string> inputs_of(const std::string& name) {
  std::vector<std::string> inputs;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kCorpus) + "/" + name, failed)) {
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    inputs.push_back(text.str());
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

}  // namespace

TEST_CASE("no input of the corpus, nor one near it, breaks what reads it") {
  std::mt19937 random(20);
  for (const auto& target : hvd::fuzz::targets()) {
    CAPTURE(std::string(target.name));
    const auto inputs = inputs_of(target.name);
    CHECK_MESSAGE(!inputs.empty(), "no corpus in " << kCorpus << "; run from the checkout's root");
    target.run("");
    for (const std::string& input : inputs) {
      target.run(input);
      for (int i = 0; i < kChanges && !input.empty(); ++i) {
        std::string changed = input.substr(0, i % 4 == 0 ? random() % input.size() : input.size());
        for (auto changes = changed.empty() ? 0U : random() % 3; changes > 0; --changes) {
          changed[random() % changed.size()] = static_cast<char>(random());
        }
        target.run(changed);
      }
    }
  }
}
