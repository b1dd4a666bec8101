// make_document() makes the manual page and the shells' completions. Options and commands come from the definition of
// the command line, so that they cannot differ from it. The synopsis and the exit codes are typed in documents.cpp; a
// test compares them with the usage and the source. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

struct OptionInfo {
  std::vector<std::string> names;  // with their dashes
  std::string value;               // the name of its value; empty: a flag
  std::vector<std::string> words;  // the values it may have, if these are few
  std::string help;
  std::string group;
};

// `kind`: man (groff's man macros, see man(7)), bash, zsh or fish. `commands`: the words that may follow hvdrun, as
// "plan". `examples` as "command" and "what it does".
Result<std::string> make_document(const std::string& kind, const std::vector<OptionInfo>& options,
                                  const std::vector<std::string>& commands,
                                  const std::vector<std::pair<std::string, std::string>>& examples);

}  // namespace hvd::cli
