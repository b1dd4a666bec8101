#include "launcher/state/unopened_hosts.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace hvd::launch {
namespace {

// Up to this many hosts have a line each, with their own messages.
constexpr std::size_t kMostLines = 3;
// Limits the host names in one line.
constexpr std::size_t kMostNameBytes = 2000;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

// Returns the end of the IPv4 address that begins at `begin`; 0: none does.
std::size_t address_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && is_word(text[end])) {
    ++end;
  }
  const std::string_view word = text.substr(begin, end - begin);
  const bool is_one =
      word.find_first_not_of("0123456789.") == std::string_view::npos && std::count(word.begin(), word.end(), '.') == 3;
  return is_one ? end : 0;
}

// Returns the message without the parts that belong to one host alone.
std::string cause_of(std::string_view host, std::string_view message) {
  std::string cause;
  for (std::size_t i = 0; i < message.size();) {
    const bool begins_word = i == 0 || !is_word(message[i - 1]);
    const std::size_t after = i + host.size();
    if (begins_word && !host.empty() && message.substr(i, host.size()) == host &&
        (after >= message.size() || !is_word(message[after]))) {
      cause += '\1';
      i = after;
    } else if (const std::size_t end = begins_word ? address_end(message, i) : 0; end > 0) {
      cause += '\2';
      i = end;
    } else {
      cause += message[i++];
    }
  }
  return cause;
}

std::string line_of(const std::vector<std::string>& names, const std::string& message) {
  std::string list;
  std::size_t named = 0;
  for (; named < names.size() && (named == 0 || list.size() + names[named].size() < kMostNameBytes); ++named) {
    list += (named > 0 ? ", " : "") + names[named];
  }
  if (named < names.size()) {
    list += " and " + std::to_string(names.size() - named) + " more";
  }
  const bool begins_with_name = message.starts_with(names.front() + ":");
  return begins_with_name ? list + message.substr(names.front().size())
                          : message + " (the same of " + std::to_string(names.size()) + " hosts: " + list + ")";
}

}  // namespace

std::vector<std::string> unopened_lines(const std::vector<std::pair<std::string, std::string>>& hosts) {
  struct Group {
    std::vector<std::string> names;
    std::vector<std::string> messages;  // of the first hosts
  };
  std::vector<Group> groups;
  std::map<std::string, std::size_t> places;
  for (const auto& [host, message] : hosts) {
    const auto [place, is_new] = places.try_emplace(cause_of(host, message), groups.size());
    if (is_new) {
      groups.emplace_back();
    }
    Group& group = groups[place->second];
    group.names.push_back(host);
    if (group.messages.size() < kMostLines) {
      group.messages.push_back(message);
    }
  }
  std::vector<std::string> lines;
  for (const Group& group : groups) {
    if (group.names.size() <= kMostLines) {
      lines.insert(lines.end(), group.messages.begin(), group.messages.end());
    } else {
      lines.push_back(line_of(group.names, group.messages.front()));
    }
  }
  return lines;
}

}  // namespace hvd::launch
