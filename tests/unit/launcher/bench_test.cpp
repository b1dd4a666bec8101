// launcher/report/bench_table and svg_chart: what `hvdrun bench` shows of what its ranks measured.
#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/report/bench_table.h"

namespace {

using namespace hvd::launch;
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
