// launcher/report/bench_table, chart and its canvases: what `hvdrun bench` shows of what its ranks measured.
#include <cmath>
#include <utility>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/chart/svg_canvas.h"
#include "launcher/report/bench_table.h"

namespace hvd::launch::bench_test {
namespace {

using hvd::bench::BenchOptions;
using hvd::bench::Measure;
using hvd::bench::Row;
using hvd::bench::Timing;

Placement two_nodes() {
  HostList hosts = {HostSpec{"a", "", 0, 2}, HostSpec{"b", "", 0, 2}};
  return place(hosts, 4).value();
}

Row row_of(std::int64_t bytes, double seconds) {
  Row row;
  row.what = "allreduce";
  row.bytes = bytes;
  row.count = bytes / 4;
  row.apart = Timing{seconds, seconds / 2, 2 * seconds, 3 * seconds, 100, 0};
  return row;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("a row has nccl-tests' columns, and its bandwidths") {
  const BenchOptions options;
  // 4 ranks move 2 * 3 / 4 of the bytes: 1 GB in 1 s is 1 GB/s, and 1.5 on the bus.
  const std::string line = bench_line(options, 4, row_of(1'000'000'000, 1.0));
  CHECK(
      line ==
      "  1000000000     250000000   float32     sum      -1  1000000    1.00    1.50       0        -       -       -  "
      "     -\n");
  CHECK(bench_head(options, two_nodes())
            .starts_with("# hvdrun bench allreduce: 4 ranks on 2 nodes, float32, sum\n"
                         "#   ranks 0 to 1 on a\n#   ranks 2 to 3 on b\n#\n"));
}

TEST_CASE("the last lines tell whether all was right") {
  Row row = row_of(4, 1e-6);
  CHECK(bench_foot({}, 2, {row}).find("# Out of bounds values : 0 OK\n") == 0);
  row.apart->wrong = 3;
  CHECK(bench_foot({}, 2, {row}).find("# Out of bounds values : 3 FAILED\n") == 0);
}

TEST_CASE("JSON has seconds and bytes per second, and null for what was not measured") {
  const auto json = nlohmann::json::parse(bench_json({}, 2, row_of(1000, 1e-3)));
  CHECK(json["event"] == "measured");
  CHECK(json["out_of_place"]["seconds"] == 1e-3);
  CHECK(json["out_of_place"]["busbw"].get<double>() == doctest::Approx(1e6));
  CHECK(json["in_place"].is_null());
}

TEST_CASE("a chart has a line for each series, and no number that is none") {
  std::vector<Row> rows;
  for (std::int64_t bytes = 4; bytes < 1 << 30; bytes *= 4) {
    rows.push_back(row_of(bytes, 1e-6 + static_cast<double>(bytes) / 1e10));
    rows.back().in_place = rows.back().apart;
  }
  const std::string svg = to_svg(bench_chart({}, two_nodes(), rows));
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "<polyline") == 4);  // two panels, apart and in place
  CHECK(count(svg, "<circle") == 4 * rows.size());
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("each way to reduce gradients has a point of its own") {
  BenchOptions options;
  options.measure = Measure::kGradients;
  std::vector<Row> rows;
  for (const char* way : {"each", "group", "flat"}) {
    rows.push_back(row_of(1 << 20, 1e-3));
    rows.back().what = way;
    rows.back().in_place = std::exchange(rows.back().apart, std::nullopt);
  }
  const Chart chart = bench_chart(options, two_nodes(), rows);
  for (const ChartPanel& panel : chart.panels) {
    REQUIRE(panel.lines.size() == 3);
    CHECK(panel.lines[2].name == "flat");
    CHECK(panel.lines[2].points.size() == 1);
  }
}

TEST_CASE("words and lines of a chart stay within it and apart") {
  struct Watch final : Canvas {
    struct Word {
      Point at;
      Anchor anchor;
      double size;
      std::string text;
      [[nodiscard]] double width() const { return 0.63 * size * static_cast<double>(text.size()); }
      [[nodiscard]] double left() const {
        return at.x - width() * (anchor == Anchor::kStart ? 0 : anchor == Anchor::kMiddle ? 0.5 : 1);
      }
    };
    void rule(Point from, Point to, const Stroke&) override { seen({from, to}); }
    void path(std::span<const Point> points, const Stroke&) override { seen({points.begin(), points.end()}); }
    void dot(Point at, double, std::uint32_t, const std::string&) override { seen({at}); }
    void text(Point at, Anchor anchor, double size, const std::string& text) override {
      words.push_back({at, anchor, size, text});
    }
    void seen(const std::vector<Point>& points) { places.insert(places.end(), points.begin(), points.end()); }
    std::vector<Word> words;
    std::vector<Point> places;
  };
  std::vector<Row> rows;
  for (std::int64_t bytes = 4; bytes <= std::int64_t{1} << 40; bytes *= 3) {
    rows.push_back(row_of(bytes, 1e-7 + static_cast<double>(bytes) / 1e9));
    rows.back().in_place = rows.back().apart;
  }
  for (const std::size_t shown : {std::size_t{1}, std::size_t{2}, rows.size()}) {
    const Chart chart = bench_chart({}, two_nodes(), {rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown)});
    Watch watch;
    draw(chart, watch);
    const Extent extent = extent_of(chart);
    for (const Point& place : watch.places) {
      CHECK((place.x >= 0 && place.x <= extent.width && place.y >= 0 && place.y <= extent.height));
    }
    for (std::size_t i = 0; i < watch.words.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& a = watch.words[i];
        const auto& b = watch.words[j];
        const bool is_beside = a.left() + a.width() <= b.left() || b.left() + b.width() <= a.left();
        const bool is_above = a.at.y <= b.at.y - 0.7 * b.size || b.at.y <= a.at.y - 0.7 * a.size;
        CHECK_MESSAGE((is_beside || is_above), a.text, " and ", b.text);
      }
    }
  }
}

TEST_CASE("a chart of nothing, of one point, and of numbers that cannot be drawn is a chart") {
  Chart chart{"<a & \"b\">", {ChartPanel{"t", "u", true, {}}, ChartPanel{"t", "u", false, {}}}};
  for (const auto& points : std::vector<std::vector<std::pair<double, double>>>{
           {}, {{4, 1}}, {{4, 0}, {8, 0}}, {{0, 1}, {4, NAN}, {8, INFINITY}, {16, -1}}}) {
    chart.panels[0].lines = {ChartLine{"l", points}};
    chart.panels[1].lines = chart.panels[0].lines;
    const std::string svg = to_svg(chart);
    CHECK(svg.find("&lt;a &amp; &quot;b&quot;&gt;") != std::string::npos);
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
  }
}

}  // namespace hvd::launch::bench_test
