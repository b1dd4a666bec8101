#include "launcher/chart/svg_canvas.h"

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20;
    safe += c == '<'   ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '&' ? "&amp;"
            : c == '"' ? "&quot;"
                       : std::string(1, is_control ? ' ' : c);
  }
  return safe;
}

const char* name_of(Anchor anchor) {
  switch (anchor) {
    case Anchor::kStart:
      return "start";
    case Anchor::kMiddle:
      return "middle";
    case Anchor::kEnd:
      break;
  }
  return "end";
}

std::string attributes_of(const Stroke& stroke) {
  std::string dashes;
  for (const double length : stroke.dashes) {
    dashes += formatted("%s%g", dashes.empty() ? "" : " ", length);
  }
  return formatted(" stroke=\"#%06x\" stroke-width=\"%g\"", static_cast<unsigned>(stroke.rgb), stroke.width) +
         (dashes.empty() ? "" : " stroke-dasharray=\"" + dashes + "\"");
}

class SvgCanvas final : public Canvas {
 public:
  void rule(Point from, Point to, const Stroke& stroke) override {
    text_ += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", from.x, from.y, to.x, to.y) +
             attributes_of(stroke) + "/>\n";
  }

  void path(std::span<const Point> points, const Stroke& stroke) override {
    std::string places;
    for (const Point& point : points) {
      places += formatted("%s%.1f,%.1f", places.empty() ? "" : " ", point.x, point.y);
    }
    text_ += "<polyline fill=\"none\" points=\"" + places + "\"" + attributes_of(stroke) + "/>\n";
  }

  void dot(Point at, double radius, std::uint32_t rgb, const std::string& hint) override {
    text_ += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"#%06x\"><title>", at.x, at.y, radius,
                       static_cast<unsigned>(rgb)) +
             escaped(hint) + "</title></circle>\n";
  }

  void text(Point at, Anchor anchor, double size, const std::string& text) override {
    text_ += formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%g\">", at.x, at.y, name_of(anchor),
                       size) +
             escaped(text) + "</text>\n";
  }

  [[nodiscard]] const std::string& elements() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string to_svg(const Chart& chart) {
  SvgCanvas canvas;
  draw(chart, canvas);
  const Extent extent = extent_of(chart);
  return formatted("<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%.0f\" height=\"%.0f\" ",
                   extent.width, extent.height) +
         formatted("viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n", extent.width, extent.height) +
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + canvas.elements() + "</svg>\n";
}

}  // namespace hvd::launch
