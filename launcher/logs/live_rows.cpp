#include "launcher/logs/live_rows.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hvd::launch {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kPlain = "\x1b[0m";

// These are the first and last code point of each block that is two columns wide, roughly as in Unicode's annex 11.
constexpr std::array<std::pair<char32_t, char32_t>, 9> kWide = {{{0x1100, 0x115f},
                                                                 {0x2e80, 0xa4cf},
                                                                 {0xac00, 0xd7a3},
                                                                 {0xf900, 0xfaff},
                                                                 {0xfe30, 0xfe6f},
                                                                 {0xff00, 0xff60},
                                                                 {0xffe0, 0xffe6},
                                                                 {0x1f300, 0x1faff},
                                                                 {0x20000, 0x3fffd}}};

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
}

// Returns the bytes of the first character: one, or a UTF-8 sequence. Bytes that are not UTF-8 count one by one.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
  std::size_t bytes = 1;
  while (bytes < std::min(wanted, text.size()) && is_continuation(text[bytes])) {
    ++bytes;
  }
  return bytes == wanted ? bytes : 1;
}

std::size_t columns_of(std::string_view character) {
  if (character.size() < 3) {
    return 1;
  }
  char32_t point = static_cast<unsigned char>(character.front()) & (character.size() == 3 ? 0x0fU : 0x07U);
  for (const char c : character.substr(1)) {
    point = (point << 6U) | (static_cast<unsigned char>(c) & 0x3fU);
  }
  const bool is_wide = std::any_of(
      kWide.begin(), kWide.end(), [point](const auto& block) { return block.first <= point && point <= block.second; });
  return is_wide ? 2 : 1;
}

// Returns the bytes of the escape sequence at the front: CSI up to its final byte, others two.
std::size_t escape_bytes(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') {
    return std::min<std::size_t>(text.size(), 2);
  }
  const auto final = std::find_if(text.begin() + 2, text.end(), [](char c) { return c >= 0x40 && c <= 0x7e; });
  return static_cast<std::size_t>(final - text.begin()) + (final == text.end() ? 0 : 1);
}

// True for "CSI numbers m". Anything else between, such as a newline, would be obeyed by a terminal.
bool is_color(std::string_view sequence) {
  return sequence.size() > 2 && sequence[1] == '[' && sequence.back() == 'm' &&
         sequence.find_first_not_of("0123456789;:", 2) == sequence.size() - 1;
}

}  // namespace

std::string fit_row(std::string_view text, std::size_t columns) {
  std::string row;
  std::size_t used = 0;
  bool has_color = false;
  while (!text.empty()) {
    if (text.front() == kEscape) {
      const std::string_view sequence = text.substr(0, escape_bytes(text));
      const bool is_shown = is_color(sequence);
      row += is_shown ? sequence : std::string_view();
      has_color = has_color || is_shown;
      text.remove_prefix(sequence.size());
      continue;
    }
    const std::string_view character = text.substr(0, character_bytes(text));
    text.remove_prefix(character.size());
    const auto byte = static_cast<unsigned char>(character.front());
    if (byte < 0x20 || byte == 0x7f) {
      continue;
    }
    // A single byte that is not UTF-8 could be a control character to a terminal, and its width is unknown.
    const std::string_view shown = character.size() == 1 && byte >= 0x80 ? "?" : character;
    used += columns_of(shown);
    if (used > columns) {
      break;
    }
    row += shown;
  }
  return has_color ? row + std::string(kPlain) : row;
}

std::vector<std::string> fit_rows(const std::vector<std::string>& rows, TerminalSize size) {
  const std::size_t most = std::max<std::size_t>(1, size.lines / 2);
  const std::size_t shown = rows.size() <= most ? rows.size() : most - 1;
  // Leave the last column free: a character there makes some terminals begin a new line.
  const std::size_t columns = std::max<std::size_t>(2, size.columns) - 1;
  std::vector<std::string> fitted;
  fitted.reserve(shown + 1);
  for (std::size_t i = 0; i < shown; ++i) {
    fitted.push_back(fit_row(rows[i], columns));
  }
  if (shown < rows.size()) {
    fitted.push_back(fit_row("(" + std::to_string(rows.size() - shown) + " more)", columns));
  }
  return fitted;
}

std::string draw_rows(const std::vector<std::string>& rows) {
  std::string bytes;
  for (const std::string& row : rows) {
    bytes += (bytes.empty() ? "" : "\r\n") + row;
  }
  return bytes;
}

std::string erase_rows(std::size_t count) {
  return (count > 1 ? "\r\x1b[" + std::to_string(count - 1) + "A" : std::string("\r")) + "\x1b[J";
}

}  // namespace hvd::launch
