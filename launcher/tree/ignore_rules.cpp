#include "launcher/tree/ignore_rules.h"

#include <fnmatch.h>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

std::string_view last_part(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// Spaces at the end count only where a backslash stands before them.
std::string_view without_end_spaces(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r') &&
         !(line.size() > 1 && line[line.size() - 2] == '\\')) {
    line.remove_suffix(1);
  }
  return line;
}

bool fits_part(std::string_view pattern, std::string_view part) {
  return ::fnmatch(std::string(pattern).c_str(), std::string(part).c_str(), 0) == 0;
}

}  // namespace

bool fits_pattern(std::string_view pattern, std::string_view path) {
  while (!pattern.empty()) {
    std::string_view rest = pattern;
    const std::string_view part = take_until(rest, '/');
    if (part == "**") {
      if (rest.empty()) {
        return !path.empty();  // everything within
      }
      for (;;) {
        if (fits_pattern(rest, path)) {
          return true;
        }
        if (path.empty()) {
          return false;
        }
        take_until(path, '/');
      }
    }
    if (path.empty() || !fits_part(part, take_until(path, '/'))) {
      return false;
    }
    pattern = rest;
  }
  return path.empty();
}

IgnoreRules::IgnoreRules(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = without_end_spaces(take_until(text, '\n'));
    if (line.empty() || line.front() == '#') {
      continue;
    }
    Rule rule;
    if (line.front() == '!') {
      rule.takes_back = true;
      line.remove_prefix(1);
    }
    if (!line.empty() && line.back() == '/') {
      rule.is_for_folders = true;
      line.remove_suffix(1);
    }
    rule.is_tied = line.find('/') != std::string_view::npos;
    if (!line.empty() && line.front() == '/') {
      line.remove_prefix(1);
    }
    if (!line.empty()) {
      rule.pattern = line;
      rules_.push_back(std::move(rule));
    }
  }
}

bool IgnoreRules::leaves_out(std::string_view path, bool is_folder) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->is_for_folders && !is_folder) {
      continue;
    }
    if (rule->is_tied ? fits_pattern(rule->pattern, path) : fits_part(rule->pattern, last_part(path))) {
      return !rule->takes_back;
    }
  }
  return false;
}

bool IgnoreRules::leaves_out_below(std::string_view path, bool is_folder) const {
  if (rules_.empty()) {
    return false;
  }
  for (std::size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    if (leaves_out(path.substr(0, slash), true)) {
      return true;
    }
  }
  return leaves_out(path, is_folder);
}

}  // namespace hvd::launch
