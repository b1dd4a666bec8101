#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>

#include "launcher/check/findings.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Up to this many hosts are listed by their full names, which are then easier to read than ranges.
constexpr std::size_t kFewHosts = 3;

// NameParts splits "node01.lan" into "node", "01", ".lan": the last number is the one that counts hosts.
struct NameParts {
  std::string before;
  std::string number;
  std::string after;
};

NameParts parts_of(const std::string& name) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const std::size_t host_end = std::min(name.find('.'), name.size());
  std::size_t end = host_end;
  while (end > 0 && !is_digit(name[end - 1])) {
    --end;
  }
  std::size_t begin = end;
  // A longer number does not count hosts, and might not fit an integer.
  while (begin > 0 && is_digit(name[begin - 1]) && end - begin < 9) {
    --begin;
  }
  const bool is_address = name.find(':') != std::string::npos || (!name.empty() && is_digit(name.front()));
  if (begin == end || is_address) {
    return {name, "", ""};
  }
  return {name.substr(0, begin), name.substr(begin, end - begin), name.substr(end)};
}

// Returns "01-03,07" for {1, 2, 3, 7} and the width of "01".
std::string ranges_of(std::vector<long> numbers, std::size_t width) {
  const auto text_of = [width](long number) {
    const std::string text = std::to_string(number);
    return std::string(width > text.size() ? width - text.size() : 0, '0') + text;
  };
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + text_of(numbers[i]);
    text += last == i ? "" : (last == i + 1 ? "," : "-") + text_of(numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string host_names(const CheckResult& result, const std::vector<int>& hosts) {
  if (hosts.size() <= kFewHosts) {
    std::string text;
    for (const int host : hosts) {
      add_to_list(text, result.hosts[static_cast<std::size_t>(host)].name());
    }
    return text;
  }
  // Where numbers have leading zeros, only names with numbers of the same width form a range.
  using Key = std::tuple<std::string, std::string, std::size_t>;
  std::set<Key> padded;
  for (const int host : hosts) {
    const NameParts parts = parts_of(result.hosts[static_cast<std::size_t>(host)].name());
    if (parts.number.size() > 1 && parts.number.front() == '0') {
      padded.insert({parts.before, parts.after, parts.number.size()});
    }
  }
  std::vector<Key> order;
  std::map<Key, std::vector<long>> numbers;
  std::map<Key, std::string> names;
  for (const int host : hosts) {
    const std::string& name = result.hosts[static_cast<std::size_t>(host)].name();
    const NameParts parts = parts_of(name);
    Key key{parts.before, parts.after, parts.number.size()};
    if (!parts.number.empty() && padded.count(key) == 0) {
      std::get<2>(key) = 1;
    }
    if (names.emplace(key, name).second) {
      order.push_back(key);
    }
    if (!parts.number.empty()) {
      numbers[key].push_back(std::stol(parts.number));
    }
  }
  std::string text;
  for (const Key& key : order) {
    const auto& [before, after, width] = key;
    const auto& own = numbers[key];
    add_to_list(text, own.size() < 2 ? names[key] : before + "[" + ranges_of(own, width) + "]" + after);
  }
  return text;
}

}  // namespace hvd::launch
