#include "launcher/job/host_range.h"

#include <algorithm>
#include <charconv>

#include "launcher/job/text_file.h"

namespace hvd::launch {
namespace {

// More is a slip of the finger (n[1-10000000]), and would take all memory.
constexpr std::size_t kMostNames = 100'000;

Error bad(std::string_view name, const std::string& what) {
  return Error(Code::kInvalid, "'" + shown_text(name) + "': " + what + "; ranges are written n[01-04,7]");
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

long number(std::string_view digits) {
  long value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// "01-03,7" as {"01", "02", "03", "7"}.
Result<std::vector<std::string>> expand_inside(std::string_view inside, std::string_view name) {
  std::vector<std::string> words;
  for (;;) {
    const std::size_t end = std::min(inside.find(','), inside.size());
    const std::string_view part = inside.substr(0, end);
    const auto dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
    if (!is_number(first) || !is_number(last) || number(last) < number(first)) {
      return bad(name, "expected a number, or a range that does not go down, found '" + shown_text(part) + "'");
    }
    if (static_cast<std::size_t>(number(last) - number(first)) >= kMostNames - words.size()) {
      return bad(name, "more than " + std::to_string(kMostNames) + " hosts");
    }
    for (long each = number(first); each <= number(last); ++each) {
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
