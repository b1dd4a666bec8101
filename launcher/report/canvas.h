// Canvas: what a chart is drawn on. The chart decides every place, colour and word; a canvas only knows its format, so
// that all formats show the same picture.
//
// Places are in points from the upper left corner. Thread: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hvd::launch {

struct Point {
  double x = 0;
  double y = 0;
};

struct Stroke {
  std::uint32_t rgb = 0;       // 0xRRGGBB
  double width = 1;            // points
  std::vector<double> dashes;  // points on and off in turn; none: a whole line
};

enum class Anchor : std::uint8_t { kStart, kMiddle, kEnd };

class Canvas {
 public:
  virtual ~Canvas() = default;

  virtual void rule(Point from, Point to, const Stroke& stroke) = 0;
  // From point to point; of fewer than two nothing is seen.
  virtual void path(std::span<const Point> points, const Stroke& stroke) = 0;
  // `hint`: what a viewer that can do so tells of it.
  virtual void dot(Point at, double radius, std::uint32_t rgb, const std::string& hint) = 0;
  // UTF-8, black, its base line at `at`.
  virtual void text(Point at, Anchor anchor, double size, const std::string& text) = 0;
};

}  // namespace hvd::launch
