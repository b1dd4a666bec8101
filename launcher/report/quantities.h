// These functions write quantities for a person to read, in few letters. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/clock.h"

namespace hvd::launch {

// Returns "7.6 GiB", "64 MiB", "512 KiB", with two digits at least.
std::string bytes_text(std::uint64_t bytes);
// Returns "+2 ms", "-3.1 s", "0 ms", "+2 h 5 min".
std::string offset_text(Duration offset);
// Returns "0.31 s", "12 s".
std::string seconds_text(Duration duration);
// Returns the speed of a network interface: "100M", "10G", "2.5G".
std::string speed_text(std::int32_t mbit);

}  // namespace hvd::launch
