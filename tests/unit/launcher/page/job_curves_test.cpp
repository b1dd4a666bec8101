#include "launcher/page/job_curves.h"

#include <cmath>

#include <doctest/doctest.h>

#include "launcher/page/page_curves.h"

namespace hvd::launch::job_curves_test {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30U;

// A job of hosts that use so many cores each, with one rank on each.
JobPicture picture_of(const std::vector<double>& cores, std::uint64_t lines = 0) {
  JobPicture picture;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    NodeShown node;
    node.name = "node" + std::to_string(i);
    node.is_sampled = true;
    node.cores = cores[i];
    node.memory_total = 16 * kGiB;
    node.memory_free = 12 * kGiB;
    picture.nodes.push_back(node);
    RankShown rank;
    rank.rank = rank.node = static_cast<std::int32_t>(i);
    rank.state = "running";
    rank.lines = lines;
    rank.bytes_per_s = 1000.0 * static_cast<double>(i);
    rank.used.runtime = {10 * (i + 1), 4000 * (i + 1), "", "", 0, {}};
    picture.ranks.push_back(rank);
  }
  return picture;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("curves: each picture is a point, and totals are the last picture's") {
  JobCurves curves;
  curves.take(0, JobPicture());  // nobody has told anything
  curves.take(1, picture_of({2, 4}, 10));
  curves.take(3, picture_of({4, 4}, 30));
  CHECK(curves.times() == std::vector<double>{1, 3});
  CHECK((std::isnan(curves.nodes().at(0).cores[0]) && curves.nodes()[0].cores[1] == 4));  // a rate needs two samples
  CHECK(curves.nodes().at(1).memory == Curve{4.0F * kGiB, 4.0F * kGiB});
  CHECK(curves.printed_lines() == Curve{20, 20});
  CHECK((std::isnan(curves.collective_bytes()[0]) && curves.collective_bytes()[1] == 1000));
  const JobTotals& totals = curves.totals();
  CHECK((totals.operations == 20 && totals.operation_bytes == 8000 && totals.lines == 60));
  CHECK(mean_of(curves.nodes()[0].cores) == doctest::Approx(4));
}

TEST_CASE("curves: a host that is away, has joined, or shows a GPU late has gaps") {
  JobCurves curves;
  curves.take(1, picture_of({1}));
  JobPicture second = picture_of({1, 2});
  second.nodes[0].is_away = true;
  second.nodes[1].gpus = {{0, 80, kGiB, 2 * kGiB}, {1, 40, kGiB, 2 * kGiB}};
  curves.take(2, second);
  CHECK(std::isnan(curves.nodes()[0].cores[1]));
  CHECK((std::isnan(curves.nodes()[1].memory[0]) && !std::isnan(curves.nodes()[1].memory[1])));
  CHECK((std::isnan(curves.nodes()[1].gpu_busy[0]) && curves.nodes()[1].gpu_busy[1] == 60));
  CHECK(curves.nodes()[1].gpu_memory[1] == 2.0F * kGiB);
  CHECK(curves.nodes()[0].gpu_busy.empty());
}

TEST_CASE("curves: a job of any length has a bounded number of points, and their mean stays") {
  JobCurves curves;
  constexpr int kSeconds = 100'000;
  for (int second = 1; second <= kSeconds; ++second) {
    curves.take(second, picture_of({second % 2 == 0 ? 1.0 : 3.0}));
  }
  CHECK(curves.times().size() <= 240);
  CHECK(curves.times().size() > 60);
  CHECK(curves.times().back() > 0.9 * kSeconds);
  for (const NodeCurves& node : curves.nodes()) {
    CHECK(node.cores.size() == curves.times().size());
  }
  JobCurves wide;
  const std::vector<double> cores(1000, 2.0);
  for (int second = 1; second <= 200; ++second) {
    wide.take(second, picture_of(cores));
  }
  CHECK(page_curves(wide, 200).size() < 2'000'000);
}

TEST_CASE("curves: the most that was used is told however long the job has lasted since") {
  JobCurves curves;
  for (int second = 1; second <= 10'000; ++second) {
    JobPicture picture = picture_of({second == 100 ? 7.0 : 1.0}, second < 100 ? 0 : 5000);
    picture.nodes[0].memory_free = second == 9'999 ? 2 * kGiB : 12 * kGiB;
    picture.ranks[0].bytes_per_s = second == 5'000 ? 64 << 20 : 0;
    curves.take(second, picture);
  }
  const std::string section = page_curves(curves, 10'000);
  CHECK(has(section, "1.0 cores, at most 7.0<"));
  CHECK(has(section, "at most 14 GiB of 16 GiB<"));
  CHECK(has(section, "at most 64 MiB/s<"));
  CHECK(has(section, "at most 5000 lines/s<"));
  JobCurves slow;
  for (int second = 1; second <= 3; ++second) {
    slow.take(second, picture_of({1.0}, static_cast<std::uint64_t>(second)));
  }
  CHECK(has(page_curves(slow, 3), "at most 1 line/s<"));
}

TEST_CASE("curves: a host that is far from the others is named, of two none is") {
  JobCurves curves;
  for (int second = 1; second <= 3; ++second) {
    curves.take(second, picture_of({4, 4, 1, 4.2}));
  }
  CHECK(curves.outliers() == std::vector<std::string>{"node2 uses 1.0 cores, half of the hosts at least 4.0 cores"});
  CHECK(has(page_curves(curves, 3), "node2 uses 1.0 cores"));
  JobCurves pair;
  pair.take(1, picture_of({4, 1}));
  pair.take(2, picture_of({4, 1}));
  pair.take(3, picture_of({4, 1}));
  CHECK(pair.outliers().empty());
}

TEST_CASE("curves: a table of the collectives by kind, also where there are too few points for a line") {
  JobCurves curves;
  JobPicture picture = picture_of({1, 1});
  picture.ranks[0].used.runtime.kinds = {{"allreduce", 20, 4096, 3'000'000, 1'000'000}};
  picture.ranks[1].used.runtime.kinds = {{"allreduce", 20, 4096, 1'000'000, 0}};
  curves.take(1, picture);
  const std::string section = page_curves(curves, 4);
  CHECK(has(section,
            "<tr><td>allreduce</td><td class=\"number\">20</td><td class=\"number\">4.0 KiB</td>"
            "<td class=\"number\">2.00 s, 50 %</td><td class=\"number\">1.00 s, 50 %</td>"
            "<td class=\"number\">1</td></tr>"));
}

TEST_CASE("curves: what ranks do that are started anew comes on top of what was done before") {
  JobCurves curves;
  JobPicture picture = picture_of({1}, 100);
  picture.ranks[0].used.runtime.kinds = {{"allreduce", 10, 4096, 1'000'000, 0}, {"barrier", 1, 0, 2, 0}};
  curves.take(1, picture);
  curves.take(2, picture);
  curves.start_again();
  curves.take(3, picture_of({1}));
  CHECK((curves.totals().lines == 100 && curves.totals().operations == 20));
  picture.ranks[0].used.runtime.kinds = {{"allreduce", 10, 4096, 2'000'000, 0}};
  curves.take(4, picture);
  const std::string section = page_curves(curves, 4);
  CHECK(has(section, "20 of 7.8 KiB in all"));
  CHECK(has(section, "200 lines"));
  CHECK(has(section, "<td>allreduce</td><td class=\"number\">20</td><td class=\"number\">8.0 KiB</td>"));
  CHECK(has(section, "<td>barrier</td><td class=\"number\">1</td>"));
}

TEST_CASE("curves: the section has a drawing for each host, escapes names, and is empty where nothing is known") {
  CHECK(page_curves(JobCurves(), 10).empty());
  JobCurves curves;
  for (int second = 1; second <= 4; ++second) {
    JobPicture picture = picture_of({1, 2}, static_cast<std::uint64_t>(second));
    picture.nodes[0].name = "<b>";
    curves.take(second, picture);
  }
  const std::string section = page_curves(curves, 4);
  CHECK(has(section, "<strong>&lt;b&gt;</strong>"));
  CHECK_FALSE(has(section, "<b>"));
  CHECK(has(section, "CPU <span class=\"dim\">1.0 cores, at most 1.0</span>"));
  CHECK(has(section, "Memory <span class=\"dim\">at most 4.0 GiB of 16 GiB</span>"));
  CHECK(has(section, "Collectives"));
  CHECK(has(section, "8 lines"));
  CHECK_FALSE(has(section, "Slowest rank"));
  CHECK_FALSE(has(section, "nan"));
}

}  // namespace hvd::launch::job_curves_test
