// Replays the corpus of all fuzz targets: as it is, cut short, and with single bytes changed. Finds nothing new, and
// keeps what was found found. HVD_WRITE_SEEDS=1: also writes anew what seeds.h makes, after a message has changed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "runtime/controller/message.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/targets.h"

namespace {

constexpr const char* kCorpus = "tests/fuzz/corpus";  // run from the checkout's root
constexpr int kChanges = 200;                         // of each input

std::string read_input(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> inputs_of(const std::string& name) {
  std::vector<std::string> inputs;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kCorpus) + "/" + name, failed)) {
    inputs.push_back(read_input(entry.path()));
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

TEST_CASE("the corpus has our messages as they are written today, and they are read") {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes the environment
  const bool writes = std::getenv("HVD_WRITE_SEEDS") != nullptr;
  for (const hvd::fuzz::Seed& seed : hvd::fuzz::seeds()) {
    CAPTURE(seed.path);
    const std::string path = std::string(kCorpus) + "/" + seed.path;
    if (writes) {
      std::ofstream(path, std::ios::binary) << seed.bytes;
    }
    CHECK_MESSAGE(read_input(path) == seed.bytes, "a message has changed: HVD_WRITE_SEEDS=1 build/bin/hvd_unit_corpus");
    const std::string body = seed.bytes.substr(1);
    const bool is_read = seed.bytes[0] == 0   ? hvd::decode_requests(body).ok()
                         : seed.bytes[0] == 1 ? hvd::decode_responses(body, 3).ok()
                         : seed.bytes[0] == 2 ? hvd::decode_shutdown(body, 3).ok()
                                              : hvd::decode_abort(body).ok();
    CHECK(is_read);
  }
}
