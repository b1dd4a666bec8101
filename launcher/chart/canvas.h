// Canvas is what a chart is drawn on. The chart decides every place, colour and word; a canvas knows only its format,
// so that all formats show the same picture.
//
// Coordinates are in points from the upper left corner. Thread: one.
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
  std::vector<double> dashes;  // points on and off in turn; none: a solid line
};

enum class Anchor : std::uint8_t { kStart, kMiddle, kEnd };

class Canvas {
 public:
  virtual ~Canvas() = default;

  virtual void rule(Point from, Point to, const Stroke& stroke) = 0;
  // Draws lines from point to point; fewer than two points draw nothing.
  virtual void path(std::span<const Point> points, const Stroke& stroke) = 0;
  // `hint` is what a viewer shows on hovering, where it can.
  virtual void dot(Point at, double radius, std::uint32_t rgb, const std::string& hint) = 0;
  // Draws UTF-8 text in black, with its base line at `at`.
  virtual void text(Point at, Anchor anchor, double size, const std::string& text) = 0;
};

}  // namespace hvd::launch
