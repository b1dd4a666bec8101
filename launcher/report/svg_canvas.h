// A chart as SVG 1.1 (W3C): text that needs no library, scales, and tells of each point what it stands for. Pure.
#pragma once

#include <string>

#include "launcher/report/chart.h"

namespace hvd::launch {

// A whole document, readable on white.
std::string to_svg(const Chart& chart);

}  // namespace hvd::launch
