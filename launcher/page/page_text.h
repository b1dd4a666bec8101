// Texts of a page: what HTML would read as its own is escaped, and numbers are as short as a person needs them. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launch {

std::string escaped(std::string_view text);
std::string fixed_text(double number, int digits);
// "0.35 s", "12.3 s", "4 min 5 s", "2 h 3 min".
std::string duration_text(double seconds);
// The same, short, for an axis.
std::string tick_text(double seconds);

}  // namespace hvd::launch
