// These functions read a job file's arguments (commandLineArgs, args): words that are split and quoted as in a shell,
// in which variables are expanded and nothing is executed. Pure.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

struct ArgumentWords {
  std::string shell_text;   // the words, quoted for any POSIX shell, which expands the variables
  std::size_t longest = 0;  // bytes of the longest word, before variables are expanded
  bool is_plain = true;     // false: it held ; | & < > ( ` or $( outside of quotes, which are taken literally
};

// Fails on a quote that does not end.
Result<ArgumentWords> read_arguments(std::string_view text);
// Returns the text that read_arguments() reads as this one word, with its variables still variables.
std::string argument_of(std::string_view word);

}  // namespace hvd::launch
