#include "runtime/base/text.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

namespace hvd {

std::optional<std::uint64_t> parse_byte_count(std::string_view text, std::uint64_t most) {
  constexpr std::string_view kUnits = "kmgt";
  unsigned shift = 0;
  if (!text.empty()) {
    const std::string last = lowered(std::string(text.substr(text.size() - 1)));
    if (const auto unit = kUnits.find(last); unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const auto number = parse_number<std::uint64_t>(text, 1, most >> shift);
  return number ? std::optional(*number << shift) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string_view take_until(std::string_view& text, char end) {
  const std::size_t length = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return taken;
}

std::string_view stat_field(std::string_view stat, int number) {
  constexpr int kFirst = 3;
  const auto name_end = stat.rfind(')');
  stat = name_end == std::string_view::npos ? std::string_view() : trimmed(stat.substr(name_end + 1));
  for (int field = kFirst; field < number; ++field) {
    take_until(stat, ' ');
  }
  return take_until(stat, ' ');
}

bool has_word(std::string_view list, std::string_view word, char separator) {
  while (!list.empty()) {
    if (take_until(list, separator) == word) {
      return true;
    }
  }
  return false;
}

void add_to_list(std::string& list, std::string_view word, std::string_view separator) {
  if (!list.empty()) {
    list += separator;
  }
  list += word;
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += i == 0 ? "" : separator;
    list += words[i];
  }
  return list;
}

std::string host_and_port(const std::string& address, const std::string& port) {
  const bool has_colons = address.find(':') != std::string::npos;
  return (has_colons ? "[" + address + "]" : address) + ":" + port;
}

std::string lowered(std::string text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

std::string quoted_word(std::string_view text, std::string_view also_plain) {
  constexpr std::string_view kPlainMarks = "_-./:,@%+";
  const auto is_plain = [&](char c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || (c >= '0' && c <= '9') || kPlainMarks.find(c) != std::string_view::npos ||
           also_plain.find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

std::string without_controls(std::string_view text, std::string_view kept) {
  std::string safe(text);
  std::replace_if(
      safe.begin(), safe.end(),
      [kept](char c) {
        const auto code = static_cast<unsigned char>(c);
        return (code < 0x20 || code == 0x7f) && kept.find(c) == std::string_view::npos;
      },
      '?');
  // Replace the C1 controls, in UTF-8: U+0080 to U+009F.
  for (std::size_t at = safe.find('\xc2'); at != std::string::npos; at = safe.find('\xc2', at + 1)) {
    if (at + 1 < safe.size() && static_cast<unsigned char>(safe[at + 1]) < 0xa0) {
      safe.replace(at, 2, "?");
    }
  }
  return safe;
}

std::string formatted(const char* format, ...) {
  std::array<char, 400> text{};
  std::va_list parts;
  va_start(parts, format);
  static_cast<void>(std::vsnprintf(text.data(), text.size(), format, parts));
  va_end(parts);
  return text.data();
}

std::string counted(std::size_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  text += noun;
  return count == 1 ? text : text + "s";
}

std::string duration_text(Duration duration) {
  const auto ms = std::chrono::round<std::chrono::milliseconds>(duration).count();
  if (ms != 0 && ms < 1000) {
    return std::to_string(ms) + " ms";
  }
  const auto tenths = (ms + 50) / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

std::string minutes_text(Duration duration) {
  constexpr long long kMinute = 60;
  constexpr long long kHour = 60 * kMinute;
  const long long seconds = std::chrono::floor<std::chrono::seconds>(duration).count();
  const long long minutes = seconds % kHour / kMinute;
  return seconds < kHour ? std::to_string(minutes) + " min " + std::to_string(seconds % kMinute) + " s"
                         : std::to_string(seconds / kHour) + " h " + std::to_string(minutes) + " min";
}

bool is_same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace hvd
