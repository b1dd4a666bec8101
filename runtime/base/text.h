// These are small texts that every room makes or reads: numbers, sizes, lines, lists, counts, durations, and bytes as
// hexadecimal digits. They stand here once, so that all rooms refuse the same input.
//
// Pure. Thread: any.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd {

// The number that the whole text is, in decimal digits. nullopt: the text is empty, has anything else in it (spaces and
// a plus sign too), or means a number outside low..high; of fractions also what is not a number.
template <typename Number>
std::optional<Number> parse_number(std::string_view text, Number low = std::numeric_limits<Number>::lowest(),
                                   Number high = std::numeric_limits<Number>::max()) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, number);
  if (failed != std::errc() || stop != end || !(number >= low && number <= high)) {
    return std::nullopt;
  }
  return number;
}

// The number of bytes that a size means: "512", or "10M" with K, M, G or T in letters of either case, each 1024 times
// the one before. nullopt: it is no such text, or means a number outside 1..most.
std::optional<std::uint64_t> parse_byte_count(std::string_view text, std::uint64_t most);

// Without the spaces, tabs and ends of lines at both ends; a part of `text`.
std::string_view trimmed(std::string_view text);

// Takes off `text` what stands before the next `end`, and `end` itself, and returns it: all of it where there is no
// `end`.
std::string_view take_until(std::string_view& text, char end);

// A field of the text of /proc/PID/stat, by its number in proc(5), from 3 on. Empty: the text has none. What stands
// before them is the process's name, which may hold any characters.
std::string_view stat_field(std::string_view stat, int number);

// Whether one of the words in a list is this one.
bool has_word(std::string_view list, std::string_view word, char separator = ' ');

// Adds a word to a list in words: "a" becomes "a, b".
void add_to_list(std::string& list, std::string_view word, std::string_view separator = ", ");

// All words as one list.
std::string joined(const std::vector<std::string>& words, std::string_view separator = ", ");

// The text that printf() makes of these, but at most 399 bytes of it.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

// "1 node", "2 nodes".
std::string counted(std::size_t count, std::string_view noun);

// "10.0.0.1:80", and "[fd00::1]:80" of an address that has colons itself.
std::string host_and_port(const std::string& address, const std::string& port);

// The same text with small letters for A to Z.
std::string lowered(std::string text);

// One word for any POSIX shell that means exactly this text: 'A b' for one with a blank. Letters, digits and some marks
// need no quotes; `also_plain` are more marks that a reader may see without.
std::string quoted_word(std::string_view text, std::string_view also_plain = "");

// The text with '?' in place of each control character of ASCII and of UTF-8 (C0, DEL, C1), but for those in `kept`: a
// terminal would take it for a command. Texts that come from files, hosts and ranks go through it.
std::string without_controls(std::string_view text, std::string_view kept = "");

// "200 ms", "1.5 s", "300 s": a limit, as settings have it.
std::string duration_text(Duration duration);

// "1 min 30 s", "2 h 5 min": how long something of a minute or more has lasted.
std::string minutes_text(Duration duration);

// Whether a secret that a caller gives is the right one. It takes as long wherever the two differ, so that a wrong one
// cannot be guessed piece by piece.
bool is_same_secret(std::string_view a, std::string_view b);

// Two lower-case digits for each byte.
std::string hex(std::span<const std::uint8_t> bytes);

}  // namespace hvd
