// These functions handle texts of a job file that may name variables ($NAME or ${NAME}). A text becomes one word of a
// shell script, or a text with the values filled in. Other shell syntax ($(...), `...`, quotes) has no meaning in these
// texts. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

struct TextPiece {
  bool is_variable = false;
  std::string text;  // a variable's name, or the text between variables
};

std::vector<TextPiece> split_variables(std::string_view text);

// Returns one word for any POSIX shell that means this text, but leaves the variables to the shell; one that is not set
// is empty.
std::string quote_with_variables(std::string_view text);

// Returns the text with values in place of the names. Where `value_of` returns nullopt, the name goes to `missing` and
// the value is empty, as in a shell.
std::string expand_variables(std::string_view text,
                             const std::function<std::optional<std::string>(const std::string& name)>& value_of,
                             std::vector<std::string>& missing);

// A job file's arguments (commandLineArgs, args): words that are split and quoted as in a shell, in which variables,
// patterns of files and a ~/ at the beginning are expanded and nothing is executed. A [ begins no pattern: it is
// oftener that of a list.
struct ArgumentWords {
  std::string shell_text;    // the words, quoted for any POSIX shell, which expands the variables
  std::size_t longest = 0;   // bytes of the longest word, before variables are expanded
  bool is_plain = true;      // false: it held ; | & < > ( ` or $( outside of quotes, which are taken literally
  bool has_pattern = false;  // it has * or ? outside of quotes: a pattern, which becomes the files that match it
};

// Fails on a quote that does not end.
Result<ArgumentWords> read_arguments(std::string_view text);
// Returns the text that read_arguments() reads as this one word, with its variables still variables.
std::string argument_of(std::string_view word);

}  // namespace hvd::launch
