#include "launcher/job/nearest_name.h"

#include <algorithm>
#include <cstddef>

namespace hvd::launch {
namespace {

char small_letter(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns how many letters are to be put in, left out, replaced, or exchanged with their neighbour, ignoring case: the
// distance of Damerau and Levenshtein, without changes within an exchanged pair.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  const auto is_same = [&](std::size_t i, std::size_t j) { return small_letter(a[i - 1]) == small_letter(b[j - 1]); };
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      std::size_t least =
          std::min({table[i - 1][j - 1] + (is_same(i, j) ? 0 : 1), table[i - 1][j] + 1, table[i][j - 1] + 1});
      if (i > 1 && j > 1 && is_same(i, j - 1) && is_same(i - 1, j)) {
        least = std::min(least, table[i - 2][j - 2] + 1);
      }
      table[i][j] = least;
    }
  }
  return table.back().back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;  // no name here is longer, while a file may hold names of any length
  std::string nearest;
  std::size_t least = name.size() / 3 + 1;
  for (const std::string& candidate : names) {
    if (name.size() > kLongest) {
      break;
    }
    if (const std::size_t far = distance(name, candidate); far < least) {
      least = far;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace hvd::launch
