#include "launcher/transport/own_names.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <vector>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// Without a comment.
std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line.substr(0, line.find_first_of("#;")));
  return {std::istream_iterator<std::string>(text), {}};
}

std::string normal(std::string name) {
  if (name.ends_with('.')) {
    name.pop_back();
  }
  std::transform(name.begin(), name.end(), name.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 'a' - 'A') : letter;
  });
  return name;
}

}  // namespace

OwnNames::OwnNames(const std::string& host_name, const std::function<bool(const std::string& address)>& is_own_address)
    : OwnNames(text_of_file("/etc/hosts"), text_of_file("/etc/resolv.conf"), host_name, is_own_address) {}

OwnNames::OwnNames(std::string_view hosts, std::string_view resolver, const std::string& host_name,
                   const std::function<bool(const std::string& address)>& is_own_address) {
  std::istringstream hosts_lines{std::string(hosts)};
  for (std::string line; std::getline(hosts_lines, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() > 1 && is_own_address(words.front())) {
      std::transform(words.begin() + 1, words.end(), std::inserter(names_, names_.end()), normal);
    }
  }
  const std::string first = host_name.substr(0, host_name.find('.'));
  std::istringstream resolver_lines{std::string(resolver)};
  for (std::string line; !first.empty() && std::getline(resolver_lines, line);) {
    const std::vector<std::string> words = words_of(line);
    if (!words.empty() && (words.front() == "search" || words.front() == "domain")) {
      std::transform(words.begin() + 1, words.end(), std::inserter(names_, names_.end()),
                     [&first](const std::string& domain) { return normal(first + "." + domain); });
    }
  }
}

bool OwnNames::has(const std::string& name) const {
  return names_.count(normal(name)) > 0;
}

}  // namespace hvd::launch
