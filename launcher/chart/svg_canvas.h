// to_svg() draws a chart as SVG 1.1 (W3C), which needs no library, scales, and says of each point what it stands for.
// Pure.
#pragma once

#include <string>

#include "launcher/chart/chart.h"

namespace hvd::launch {

// Returns a whole document, readable on white.
std::string to_svg(const Chart& chart);

}  // namespace hvd::launch
