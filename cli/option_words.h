// The words of the command line as horovodrun's parser takes them (-np, abbreviated names, the command behind the
// options), made such as CLI11 reads.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "runtime/base/result.h"
#include "runtime/bench/bench_wire.h"

namespace CLI {
class App;
}

namespace hvd::cli {

// Reads the options into the Flags that `app` was made with, and what stands behind them into flags.command. An error
// names the word, or why an option of horovodrun is refused.
Result<void> read_words(CLI::App& app, std::vector<std::string> words, Flags& flags);
// "hvdrun bench MEASURE [options]", with the measure anywhere between the options. Reads all words into `flags`.
Result<bench::Measure> read_bench_words(CLI::App& app, std::vector<std::string> words, Flags& flags);
// Whether --json is one of the options, however it is written; nothing is checked.
[[nodiscard]] bool has_json_word(const CLI::App& app, std::vector<std::string> words);

}  // namespace hvd::cli
