#include "launcher/report/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace hvd::launch {
namespace {

constexpr double kPanelWidth = 480;
constexpr double kHeight = 360;
constexpr double kLeft = 62;
constexpr double kRight = 14;
constexpr double kTop = 64;
constexpr double kBottom = 46;
// Apart from each other also for those who do not tell red from green (Okabe and Ito, 2008).
constexpr std::array<const char*, 4> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7"};
constexpr std::array<const char*, 4> kDashes = {"none", "6 3", "2 3", "8 3 2 3"};

template <typename... Parts>
std::string formatted(const char* format, Parts... parts) {
  std::array<char, 300> text{};
  std::snprintf(text.data(), text.size(), format, parts...);
  return text.data();
}

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

std::string text_at(double x, double y, const char* anchor, int size, const std::string& text) {
  return formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\">", x, y, anchor, size) +
         escaped(text) + "</text>\n";
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

// From a range of numbers to a range of places.
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

// 1, 2 or 5 times a power of ten, for about `steps` steps to `high`.
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

class PanelWriter {
 public:
  PanelWriter(const ChartPanel& panel, double left) : panel_(panel), left_(left) {
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
    if (x_.low == x_.high) {
      x_.low /= 2;
      x_.high *= 2;
    }
    round_values();
  }

  [[nodiscard]] std::string svg() const {
    std::string out = text_at(left_ + kLeft, kTop - 12, "start", 12, panel_.title + " (" + panel_.unit + ")");
    out += grid();
    for (std::size_t i = 0; i < panel_.lines.size(); ++i) {
      out += line(i);
    }
    return out;
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

  [[nodiscard]] std::string grid() const {
    std::string out;
    const auto rule = [&out](double x1, double y1, double x2, double y2) {
      out += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", x1, y1, x2, y2);
    };
    const double step = panel_.is_logarithmic ? 0 : round_step(y_.high, 5);
    for (double value = y_.low; value <= y_.high * 1.001; value = panel_.is_logarithmic ? value * 10 : value + step) {
      rule(x_.from, y_.place(value), x_.to, y_.place(value));
      out += text_at(x_.from - 6, y_.place(value) + 4, "end", 11, formatted("%.6g", value));
    }
    const double decades = std::max(1.0, std::ceil(std::log(x_.high / x_.low) / std::log(4) / 6));
    for (double bytes = x_.low; bytes <= x_.high * 1.001; bytes *= std::pow(4, decades)) {
      rule(x_.place(bytes), y_.from, x_.place(bytes), y_.to);
      out += text_at(x_.place(bytes), y_.from + 18, "middle", 11, size_text(bytes));
    }
    return out;
  }

  [[nodiscard]] std::string line(std::size_t index) const {
    const ChartLine& line = panel_.lines[index];
    const char* color = kColors[index % kColors.size()];
    std::string places;
    std::string dots;
    for (const auto& point : line.points) {
      if (is_drawable(panel_, point)) {
        const double x = x_.place(point.first);
        const double y = y_.place(point.second);
        places += formatted("%s%.1f,%.1f", places.empty() ? "" : " ", x, y);
        dots += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"><title>", x, y, color) +
                escaped(size_text(point.first) + ": " + formatted("%.4g ", point.second) + panel_.unit) +
                "</title></circle>\n";
      }
    }
    const char* dashes = kDashes[index % kDashes.size()];
    const double key = left_ + kLeft + 190 + 110 * static_cast<double>(index);
    return formatted("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" stroke-dasharray=\"%s\" points=\"",
                     color, dashes) +
           places + "\"/>\n" + dots +
           formatted(
               "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"1.6\" "
               "stroke-dasharray=\"%s\"/>\n",
               key, kTop - 16, key + 22, kTop - 16, color, dashes) +
           text_at(key + 27, kTop - 12, "start", 11, line.name);
  }

  const ChartPanel& panel_;
  const double left_;
  Axis x_;
  Axis y_;
  bool has_points_ = false;
};

}  // namespace

std::string to_svg(const Chart& chart) {
  const double width = kPanelWidth * static_cast<double>(std::max<std::size_t>(1, chart.panels.size()));
  std::string out = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
      "%.0f\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      width, kHeight, width, kHeight);
  out += text_at(kLeft, 24, "start", 15, chart.title);
  for (std::size_t i = 0; i < chart.panels.size(); ++i) {
    out += PanelWriter(chart.panels[i], kPanelWidth * static_cast<double>(i)).svg();
  }
  return out + "</svg>\n";
}

}  // namespace hvd::launch
