#include "launcher/survey/script_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/survey/python_survey.h"

namespace hvd::launch {

std::string python_script_of(const std::vector<std::string>& argv) {
  if (argv.empty()) {
    return "";
  }
  if (!is_python(argv.front())) {
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

std::optional<MissingPlace> find_missing_script(const std::string& script, const std::string& cwd) {
  const bool is_absolute = !script.empty() && script.front() == '/';
  if (script.empty() || (cwd.empty() && !is_absolute)) {
    return std::nullopt;
  }
  const std::string path = is_absolute ? script : cwd + "/" + script;
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return MissingPlace{path, Error::from_errno("no such script: '" + path + "'")};
  }
  if (::access(path.c_str(), R_OK) != 0) {
    return MissingPlace{path, Error::from_errno("the script cannot be read: '" + path + "'")};
  }
  return std::nullopt;
}

std::optional<MissingPlace> find_missing_place(const std::vector<std::string>& argv, const std::string& cwd) {
  struct stat info{};
  if (!cwd.empty() && ::stat(cwd.c_str(), &info) != 0) {
    return MissingPlace{cwd, Error::from_errno("cannot enter the working directory '" + cwd + "'")};
  }
  return find_missing_script(python_script_of(argv), cwd);
}

}  // namespace hvd::launch
