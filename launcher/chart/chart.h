// Chart is a line chart over sizes in bytes on a logarithmic axis: enough to see where a cluster is slow. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/chart/canvas.h"

namespace hvd::launch {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // bytes (above 0) and value, by rising bytes
};

struct ChartPanel {
  std::string title;
  std::string unit;
  bool is_logarithmic = false;  // for its values; those not above 0 are then left out
  std::vector<ChartLine> lines;
};

struct Chart {
  std::string title;
  std::vector<ChartPanel> panels;  // side by side
};

struct Extent {
  double width = 0;
  double height = 0;
};

// Returns the size that `draw` needs; the canvas is white.
Extent extent_of(const Chart& chart);
// Draws a chart that is readable without colours too: lines differ in dashes, and colours in lightness.
void draw(const Chart& chart, Canvas& canvas);

}  // namespace hvd::launch
