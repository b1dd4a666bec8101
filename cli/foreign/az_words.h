// read_az() says what a command line of `az batchai` is here, with its options: those of Batch AI's last release, and
// of its first, where some commands had other names. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

struct AzLine {
  std::string command{};             // its words in az
  std::vector<std::string> words{};  // of hvdrun, without its name; none: there is nothing to be done
  std::string why_none{};            // why there is not
};

// True when the words begin a command of `az batchai`, as in "job create -n NAME".
[[nodiscard]] bool begins_az_command(const std::vector<std::string>& words);
// Returns the words without "az batchai" or "batchai", with which they begin; nothing else is changed.
[[nodiscard]] std::vector<std::string> without_az(std::vector<std::string> words);
// Reads the words of such a command. Options that it does not know are passed on. kInvalid: hvdrun has no such command,
// or the words lack what it needs; the message says what takes its place.
Result<AzLine> read_az(const std::vector<std::string>& words);

}  // namespace hvd::cli
