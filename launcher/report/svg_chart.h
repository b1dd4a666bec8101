// Line charts as SVG 1.1 (W3C), by sizes in bytes on a logarithmic axis: enough to see where a cluster is slow, and no
// library needed. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd::launch {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // bytes (above 0) and value, by rising bytes
};

struct ChartPanel {
  std::string title;
  std::string unit;
  bool is_logarithmic = false;  // its values; what is not above 0 is then left out
  std::vector<ChartLine> lines;
};

struct Chart {
  std::string title;
  std::vector<ChartPanel> panels;  // side by side
};

// A whole document, readable on white and without colours: lines differ in dashes too.
std::string to_svg(const Chart& chart);

}  // namespace hvd::launch
