// A job file's arguments (commandLineArgs, args): words as a shell splits and quotes them, in which variables are
// expanded and nothing is executed. Pure.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

struct ArgumentWords {
  std::string shell_text;   // the words for any POSIX shell; variables are its own
  std::size_t longest = 0;  // bytes of the longest word, before variables are expanded
  bool is_plain = true;     // false: it held ; | & < > ( ` or $( outside of quotes, which are taken as they are
};

// An error: a quote that does not end.
Result<ArgumentWords> read_arguments(std::string_view text);
// The text in which read_arguments() finds this one word, its variables being variables.
std::string argument_of(std::string_view word);

}  // namespace hvd::launch
