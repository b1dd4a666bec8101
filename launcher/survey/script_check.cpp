#include "launcher/survey/script_check.h"

#include <string_view>

namespace hvd::launch {

std::string python_script_of(const std::vector<std::string>& argv) {
  if (argv.empty()) {
    return "";
  }
  const std::string_view program = std::string_view(argv.front()).substr(argv.front().rfind('/') + 1);
  if (program.substr(0, 6) != "python" && program.substr(0, 4) != "pypy") {
    return "";
  }
  for (std::size_t i = 1; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (word.size() < 2 || word.front() != '-') {
      return word == "-" ? "" : word;
    }
    // The value of these options is the next word (python(1)). -m and -c end the search, since all that follows is
    // theirs.
    if (word == "-X" || word == "-W" || word == "--check-hash-based-pycs") {
      ++i;
    } else if (word.front() == '-' && word[1] != '-' && word.find_first_of("mc") != std::string::npos) {
      return "";
    }
  }
  return "";
}

}  // namespace hvd::launch
