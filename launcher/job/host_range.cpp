#include "launcher/job/host_range.h"

#include <algorithm>

#include "launcher/job/text_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// More names are a typing error (n[1-10000000]), and would take all memory.
constexpr std::size_t kMostNames = 100'000;
// Numbers above it are taken for a mistake.
constexpr long kMostNumber = 999'999'999;

Error bad(std::string_view name, const std::string& what) {
  return Error(Code::kInvalid, "'" + shown_text(name) + "': " + what + "; ranges are written n[01-04,7]");
}

// Returns {"01", "02", "03", "7"} for "01-03,7".
Result<std::vector<std::string>> expand_inside(std::string_view inside, std::string_view name) {
  std::vector<std::string> words;
  for (;;) {
    const std::size_t end = std::min(inside.find(','), inside.size());
    const std::string_view part = inside.substr(0, end);
    const auto dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::optional<long> low = parse_number<long>(first, 0, kMostNumber);
    const std::optional<long> high =
        dash == std::string_view::npos ? low : parse_number<long>(part.substr(dash + 1), 0, kMostNumber);
    if (!low || !high || *high < *low) {
      return bad(name, "expected a number, or a range that does not go down, found '" + shown_text(part) + "'");
    }
    if (static_cast<std::size_t>(*high - *low) >= kMostNames - words.size()) {
      return bad(name, "more than " + std::to_string(kMostNames) + " hosts");
    }
    for (long each = *low; each <= *high; ++each) {
      std::string digits = std::to_string(each);
      words.push_back(std::string(first.size() - std::min(first.size(), digits.size()), '0') + digits);
    }
    if (end == inside.size()) {
      return words;
    }
    inside.remove_prefix(end + 1);
  }
}

}  // namespace

Result<std::vector<std::string>> expand_host_range(std::string_view name) {
  std::vector<std::string> names{""};
  std::string_view rest = name;
  for (;;) {
    const std::size_t open = std::min(rest.find('['), rest.size());
    if (rest.substr(0, open).find(']') != std::string_view::npos) {
      return bad(name, "']' without '['");
    }
    for (std::string& each : names) {
      each += rest.substr(0, open);
    }
    if (open == rest.size()) {
      return names;
    }
    const std::size_t close = rest.find(']', open);
    if (close == std::string_view::npos) {
      return bad(name, "'[' without ']'");
    }
    HVD_TRY_ASSIGN(const auto words, expand_inside(rest.substr(open + 1, close - open - 1), name));
    if (words.size() > kMostNames / names.size()) {
      return bad(name, "more than " + std::to_string(kMostNames) + " hosts");
    }
    std::vector<std::string> longer;
    for (const std::string& each : names) {
      for (const std::string& word : words) {
        longer.push_back(each + word);
      }
    }
    names = std::move(longer);
    rest.remove_prefix(close + 1);
  }
}

}  // namespace hvd::launch
