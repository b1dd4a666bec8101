// These functions read the words of the command line as horovodrun's parser does (-np, abbreviated names, the command
// after the options), and rewrite them so that CLI11 can read them.
#pragma once

#include <string>
#include <vector>

#include "cli/options/flags.h"
#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"

namespace CLI {
class App;
}

namespace hvd::cli {

// Reads the words into what `app` was told of, with errors in hvdrun's own words.
Result<void> parse_words(CLI::App& app, std::vector<std::string> words);
// Adds to what is wrong with a command's words how they are written.
Error with_usage(const Error& why, const std::string& usage);
// Returns "usage: hvdrun USAGE", what the command does, and its options.
std::string command_help(CLI::App& app, const std::string& usage);

// Reads the options into the Flags that `app` was made with, and the words after them into flags.command. An error
// names the word, or says why an option of horovodrun is refused.
Result<void> read_words(CLI::App& app, std::vector<std::string> words, Flags& flags);
// Reads all words of "hvdrun bench MEASURE [options]" into `flags`, with the measure anywhere between the options.
Result<bench::Measure> read_bench_words(CLI::App& app, std::vector<std::string> words, Flags& flags);
// True when --json is one of the options, however it is written; nothing is checked.
[[nodiscard]] bool has_json_word(const CLI::App& app, std::vector<std::string> words);

// Who types a command of az batchai from habit is told what takes its place, instead of that no host has a program of
// that name. Returns that message; empty: these words begin no such command.
std::string instead_of_az(const std::vector<std::string>& words);
// Returns the command line of hvdrun with these words, as one types it in a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace hvd::cli
