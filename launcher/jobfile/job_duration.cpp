#include <charconv>
#include <cmath>
#include <string>

#include "launcher/jobfile/form_reader.h"

namespace hvd::launch {
namespace {

constexpr double kMostSeconds = 1e9;

std::optional<double> take_number(std::string_view& text) {
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failed != std::errc() || text.empty() || text.front() < '0' || text.front() > '9') {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<double> unit_seconds(char unit, bool is_month) {
  switch (unit) {
    case 'W':
      return 7 * 86400.0;
    case 'D':
      return 86400.0;
    case 'H':
      return 3600.0;
    case 'M':
      return is_month ? std::nullopt : std::optional(60.0);  // a month has no fixed length
    case 'S':
      return 1.0;
    default:
      return std::nullopt;
  }
}

// Reads P7DT1H30M (ISO 8601), and 7d or 1h30m without the letters before.
std::optional<double> parse_units(std::string_view text) {
  const bool is_iso = text.starts_with('P') || text.starts_with('p');
  bool is_date = is_iso;
  double seconds = 0;
  text.remove_prefix(is_iso ? 1 : 0);
  bool any = false;
  while (!text.empty()) {
    if (is_iso && (text.front() == 'T' || text.front() == 't')) {
      is_date = false;
      text.remove_prefix(1);
      continue;
    }
    const auto number = take_number(text);
    if (!number || text.empty()) {
      return number && !any && !is_iso ? number : std::nullopt;  // seconds without a unit
    }
    const auto unit = unit_seconds(static_cast<char>(text.front() & ~0x20), is_date);
    if (!unit) {
      return std::nullopt;
    }
    seconds += *number * *unit;
    any = true;
    text.remove_prefix(1);
  }
  return any ? std::optional(seconds) : std::nullopt;
}

// Reads 1:30:00, 7.00:00:00, and Python's form "7 days, 0:00:00".
std::optional<double> parse_clock(std::string_view text) {
  double days = 0;
  const auto comma = text.find(", ");
  if (comma != std::string_view::npos) {
    std::string_view head = text.substr(0, comma);
    const auto number = take_number(head);
    if (!number || (head != " days" && head != " day")) {
      return std::nullopt;
    }
    days = *number;
    text.remove_prefix(comma + 2);
  } else if (const auto dot = text.find('.'); dot != std::string_view::npos && dot < text.find(':')) {
    std::string_view head = text.substr(0, dot);
    const auto number = take_number(head);
    if (!number || !head.empty()) {
      return std::nullopt;
    }
    days = *number;
    text.remove_prefix(dot + 1);
  }
  double seconds = 0;
  for (int part = 0; part < 3; ++part) {
    const auto number = take_number(text);
    const bool is_last = part == 2;
    if (!number || (is_last ? !text.empty() : !text.starts_with(':')) || (part > 0 && *number >= 60)) {
      return std::nullopt;
    }
    seconds = seconds * 60 + *number;
    text.remove_prefix(is_last ? 0 : 1);
  }
  return days * 86400 + seconds;
}

}  // namespace

std::optional<Duration> parse_job_duration(std::string_view text) {
  const auto seconds = text.find(':') == std::string_view::npos ? parse_units(text) : parse_clock(text);
  if (!seconds || !(*seconds > 0 && *seconds <= kMostSeconds)) {
    return std::nullopt;
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

}  // namespace hvd::launch
