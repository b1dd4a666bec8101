#include "launcher/chart/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr double kPanelWidth = 480;
constexpr double kHeight = 374;
constexpr double kLeft = 62;
constexpr double kRight = 18;
constexpr double kTop = 64;
constexpr double kBottom = 60;
constexpr double kTitleSize = 15;
constexpr double kPanelTitleSize = 12;
constexpr double kLabelSize = 11;
constexpr std::uint32_t kGridRgb = 0xd8d8d8;
constexpr std::uint32_t kFineGridRgb = 0xf0f0f0;
// These colours can be told apart in grey, and by readers who cannot tell red from green (Paul Tol's high-contrast
// scheme, 2021). Their lightness is 29, 49 and 72 of 100.
constexpr std::array<std::uint32_t, 3> kColors = {0x004488, 0xbb5566, 0xddaa33};

std::vector<double> dashes_of(std::size_t index) {
  static const std::array<std::vector<double>, 4> kDashes = {{{}, {6, 3}, {2, 3}, {8, 3, 2, 3}}};
  return kDashes[index % kDashes.size()];
}

std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return formatted("%.4g %s", bytes, kUnits[unit]);
}

// Axis maps a range of numbers to a range of places.
struct Axis {
  double low = 0;
  double high = 1;
  double from = 0;  // where `low` is drawn
  double to = 1;
  bool is_logarithmic = false;

  [[nodiscard]] double place(double value) const {
    const double share = is_logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
};

// Returns 1, 2 or 5 times a power of ten, which makes about `steps` steps up to `high`.
double round_step(double high, int steps) {
  const double rough = high / steps;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      return factor * power;
    }
  }
  return 10 * power;
}

bool is_drawable(const ChartPanel& panel, const std::pair<double, double>& point) {
  return point.first > 0 && std::isfinite(point.first) && std::isfinite(point.second) &&
         (!panel.is_logarithmic || point.second > 0);
}

class PanelArtist {
 public:
  PanelArtist(const ChartPanel& panel, double left, Canvas& canvas) : panel_(panel), left_(left), canvas_(canvas) {
    x_ = Axis{INFINITY, 0, left + kLeft, left + kPanelWidth - kRight, true};
    y_ = Axis{panel.is_logarithmic ? INFINITY : 0, 0, kHeight - kBottom, kTop, panel.is_logarithmic};
    for (const ChartLine& line : panel.lines) {
      for (const auto& point : line.points) {
        if (is_drawable(panel, point)) {
          x_.low = std::min(x_.low, point.first);
          x_.high = std::max(x_.high, point.first);
          y_.low = std::min(y_.low, point.second);
          y_.high = std::max(y_.high, point.second);
        }
      }
    }
    has_points_ = x_.high > 0;
    x_ = has_points_ ? x_ : Axis{1, 2, x_.from, x_.to, true};
    if (x_.high < 2 * x_.low) {  // otherwise there may be no power of two to label
      x_.low /= 2;
      x_.high *= 2;
    }
    round_values();
  }

  void draw() const {
    canvas_.text({left_ + kLeft, kTop - 12}, Anchor::kStart, kPanelTitleSize, panel_.title + " (" + panel_.unit + ")");
    draw_sizes();
    panel_.is_logarithmic ? draw_decades() : draw_steps();
    double key = x_.to;
    for (std::size_t i = panel_.lines.size(); i > 0; --i) {  // the legend ends where the panel does
      key -= key_width_of(panel_.lines[i - 1]);
      draw_key(i - 1, key);
    }
    for (std::size_t i = 0; i < panel_.lines.size(); ++i) {
      draw_line(i);
    }
  }

 private:
  void round_values() {
    if (!has_points_ || !(y_.high > 0)) {
      y_.low = panel_.is_logarithmic ? 1 : 0;
      y_.high = panel_.is_logarithmic ? 10 : 1;
    } else if (panel_.is_logarithmic) {
      y_.low = std::pow(10, std::floor(std::log10(y_.low)));
      y_.high = std::max(10 * y_.low, std::pow(10, std::ceil(std::log10(y_.high))));
    } else {
      y_.low = 0;
      const double step = round_step(y_.high, 5);
      y_.high = step * std::ceil(y_.high / step);
    }
  }

  void rule(Point from, Point to, std::uint32_t rgb) const { canvas_.rule(from, to, Stroke{rgb, 1, {}}); }

  void rule_value(double value, std::uint32_t rgb, bool has_label) const {
    rule({x_.from, y_.place(value)}, {x_.to, y_.place(value)}, rgb);
    if (has_label) {
      canvas_.text({x_.from - 6, y_.place(value) + 4}, Anchor::kEnd, kLabelSize, formatted("%.7g", value));
    }
  }

  void draw_steps() const {
    const double step = round_step(y_.high, 5);
    for (double value = y_.low; value <= y_.high * 1.001; value += step) {
      rule_value(value, kGridRgb, true);
    }
  }

  // Two and five times a power get labels too, where there is room.
  void draw_decades() const {
    const bool has_room = y_.high / y_.low < 1001;
    for (double power = y_.low; power < y_.high * 0.999; power *= 10) {
      for (int times = 2; times <= 9; ++times) {
        rule_value(times * power, kFineGridRgb, has_room && (times == 2 || times == 5));
      }
    }
    for (double power = y_.low; power <= y_.high * 1.001; power *= 10) {
      rule_value(power, kGridRgb, true);
    }
  }

  // Labels at most seven powers of two, so that the labels stay apart.
  void draw_sizes() const {
    const double first = std::ceil(std::log2(x_.low) - 1e-9);
    const double step = std::max(1.0, std::ceil(std::log2(x_.high / x_.low) / 6));
    for (double power = first; power <= std::log2(x_.high) + 1e-9; power += step) {
      const double x = x_.place(std::exp2(power));
      rule({x, y_.from}, {x, y_.to}, kGridRgb);
      canvas_.text({x, y_.from + 18}, Anchor::kMiddle, kLabelSize, size_text(std::exp2(power)));
    }
    canvas_.text({(x_.from + x_.to) / 2, y_.from + 40}, Anchor::kMiddle, kLabelSize, "size");
  }

  void draw_line(std::size_t index) const {
    const ChartLine& line = panel_.lines[index];
    const Stroke stroke = stroke_of(index);
    std::vector<Point> places;
    for (const auto& point : line.points) {
      if (is_drawable(panel_, point)) {
        places.push_back({x_.place(point.first), y_.place(point.second)});
      }
    }
    canvas_.path(places, stroke);
    std::size_t next = 0;
    for (const auto& point : line.points) {
      if (is_drawable(panel_, point)) {
        canvas_.dot(places[next++], 2.5, stroke.rgb,
                    size_text(point.first) + ": " + formatted("%.4g ", point.second) + panel_.unit);
      }
    }
  }

  static Stroke stroke_of(std::size_t index) { return {kColors[index % kColors.size()], 1.6, dashes_of(index)}; }

  // Fonts differ in width; this is enough for a wide one.
  static double key_width_of(const ChartLine& line) {
    constexpr double kWidestCharacter = 0.63 * kLabelSize;
    return kKeyText + kWidestCharacter * static_cast<double>(line.name.size()) + 10;
  }

  void draw_key(std::size_t index, double key) const {
    canvas_.rule({key, kTop - 16}, {key + 22, kTop - 16}, stroke_of(index));
    canvas_.text({key + kKeyText, kTop - 12}, Anchor::kStart, kLabelSize, panel_.lines[index].name);
  }

  static constexpr double kKeyText = 27;  // after a piece of the line

  const ChartPanel& panel_;
  const double left_;
  Canvas& canvas_;
  Axis x_;
  Axis y_;
  bool has_points_ = false;
};

}  // namespace

Extent extent_of(const Chart& chart) {
  return {kPanelWidth * static_cast<double>(std::max<std::size_t>(1, chart.panels.size())), kHeight};
}

void draw(const Chart& chart, Canvas& canvas) {
  canvas.text({kLeft, 24}, Anchor::kStart, kTitleSize, chart.title);
  for (std::size_t i = 0; i < chart.panels.size(); ++i) {
    PanelArtist(chart.panels[i], kPanelWidth * static_cast<double>(i), canvas).draw();
  }
}

}  // namespace hvd::launch
