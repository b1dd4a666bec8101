#include <doctest/doctest.h>

#include "launcher/samples/job_samples.h"
#include "launcher/samples/metrics_text.h"

namespace hvd::launch::samples_test {
namespace {

JobPicture two_ranks() {
  JobPicture view;
  view.id = "c0ffee00";
  view.nodes.resize(1);
  view.nodes[0].name = "node\"1";
  view.ranks.resize(2);
  view.ranks[1].rank = 1;
  for (RankShown& rank : view.ranks) {
    rank.state = "running";
  }
  return view;
}

SampleMessage sample_at(std::uint64_t at_ms, std::uint64_t cpu_ms, std::uint64_t bytes) {
  SampleMessage sample;
  sample.at_ms = at_ms;
  sample.cpu_ms = cpu_ms;
  sample.ranks.push_back(
      {0,
       1,
       cpu_ms,
       1U << 20U,
       true,
       {bytes / 8, bytes, "allreduce", "x", 10, {{"allreduce", bytes / 8, bytes, 1500000, 250000}}}});
  return sample;
}

const std::vector<std::string>& marked(JobPicture& view) {
  static std::vector<std::string> odd;
  odd.clear();
  mark_odd_ranks(view);
  for (const RankShown& rank : view.ranks) {
    odd.push_back(rank.odd);
  }
  return odd;
}

}  // namespace

TEST_CASE("rates are made of two samples, and a process that began anew has none") {
  JobSamples samples;
  samples.take(0, sample_at(1000, 500, 8000));
  samples.take(0, sample_at(3000, 1500, 24000));
  JobPicture view = two_ranks();
  samples.fill(view, TimePoint());
  CHECK(view.nodes[0].cores == doctest::Approx(0.5));
  CHECK(view.ranks[0].cores == doctest::Approx(0.5));
  CHECK(view.ranks[0].bytes_per_s == doctest::Approx(8000));
  CHECK(view.ranks[0].operations_per_s == doctest::Approx(1000));
  CHECK_FALSE(view.ranks[1].is_sampled);
  samples.take(0, sample_at(4000, 100, 0));
  samples.fill(view, TimePoint());
  CHECK(view.ranks[0].cores == 0);
}

TEST_CASE("a rank that has ended uses nothing and does nothing") {
  JobSamples samples;
  samples.take(0, sample_at(1000, 500, 8000));
  samples.take(0, sample_at(2000, 1500, 24000));
  JobPicture view = two_ranks();
  view.ranks[0].state = "ended";
  samples.fill(view, TimePoint());
  CHECK(view.ranks[0].cores == 0);
  CHECK((view.ranks[0].used.processes == 0 && view.ranks[0].used.memory_bytes == 0));
  CHECK(view.ranks[0].used.runtime.operation.empty());
  CHECK(view.ranks[0].used.cpu_ms == 1500);
}

TEST_CASE("what a rank has counted when it ended is kept, and says nothing of the node") {
  JobSamples samples;
  samples.take(0, sample_at(1000, 500, 8000));
  samples.take(0, sample_at(2000, 1500, 24000));
  SampleMessage last = sample_at(0, 0, 80000);
  last.is_last = true;
  samples.take(0, last);
  JobPicture view = two_ranks();
  view.ranks[0].state = "ended";
  samples.fill(view, TimePoint());
  CHECK(view.ranks[0].used.runtime.operations == 10000);
  CHECK(view.nodes[0].cores == doctest::Approx(1.0));
  samples.take(0, sample_at(3000, 2000, 8));  // it was started again: another process
  view.ranks[0].state = "running";
  samples.fill(view, TimePoint());
  CHECK((view.ranks[0].cores == 0 && view.ranks[0].bytes_per_s == 0));
}

TEST_CASE("lines are counted, and the time since the last one") {
  JobSamples samples;
  samples.note_output(1, "a\nb\nc", TimePoint(std::chrono::seconds(10)));
  JobPicture view = two_ranks();
  samples.fill(view, TimePoint(std::chrono::seconds(12)));
  CHECK(view.ranks[0].silent_ms == -1);
  CHECK(view.ranks[1].lines == 2);
  CHECK(view.ranks[1].output_bytes == 5);
  CHECK(view.ranks[1].silent_ms == 2000);
}

TEST_CASE("who is not in the operation in which most wait stands out") {
  JobPicture view = two_ranks();
  view.ranks.resize(3, view.ranks[1]);
  for (RankShown& rank : view.ranks) {
    rank.is_sampled = true;
    rank.used.has_runtime = true;
    rank.used.runtime = {1, 1, "allreduce", "x", 5000, {}};
  }
  CHECK(marked(view) == std::vector<std::string>{"", "", ""});
  view.ranks[2].used.runtime = {};
  CHECK(marked(view) == std::vector<std::string>{"", "", "the others wait for it"});
  view.ranks[0].used.runtime.for_ms = view.ranks[1].used.runtime.for_ms = 3;
  CHECK(marked(view) == std::vector<std::string>{"", "", ""});
}

TEST_CASE("of two ranks, one that waits shows that the other is waited for") {
  JobPicture view = two_ranks();
  for (RankShown& rank : view.ranks) {
    rank.is_sampled = true;
    rank.used.has_runtime = true;
  }
  RuntimeSample& first = view.ranks[0].used.runtime;
  first = {1, 1, "allreduce", "x", 46'000, {}};
  CHECK(marked(view) == std::vector<std::string>{"", "the others wait for it"});
  first.for_ms = 3;
  CHECK(marked(view) == std::vector<std::string>{"", ""});
  first = {1, 1, "join", "", 46'000, {}};
  CHECK(marked(view) == std::vector<std::string>{"", ""});
  // Each waits for the other: nobody can say which of them is wrong.
  first = {1, 1, "allreduce", "x", 46'000, {}};
  view.ranks[1].used.runtime = {1, 1, "allreduce", "y", 46'000, {}};
  CHECK(marked(view) == std::vector<std::string>{"", ""});
}

TEST_CASE("who uses other amounts than the rest, or has failed, stands out") {
  JobPicture view = two_ranks();
  view.ranks.resize(4, view.ranks[1]);
  for (RankShown& rank : view.ranks) {
    rank.is_sampled = true;
    rank.cores = 1;
    rank.used.memory_bytes = 1U << 30U;
  }
  view.ranks[0].cores = 0.1;
  view.ranks[1].used.memory_bytes = 3ULL << 30U;
  view.ranks[3].state = "lost";
  CHECK(marked(view) == std::vector<std::string>{"uses less processor than the others",
                                                 "uses more memory than the others", "", "lost"});
}

TEST_CASE("a view travels, and one whose ranks are on no node is refused") {
  JobPicture view = two_ranks();
  const auto back = JobPicture::decode(view.encode());
  REQUIRE(back.ok());
  CHECK(back.value().nodes[0].name == "node\"1");
  view.ranks[0].node = 1;
  CHECK_FALSE(JobPicture::decode(view.encode()).ok());
  CHECK_FALSE(JobPicture::decode("x").ok());
}

TEST_CASE("a node is connected once it was reached, until it is away or lost") {
  JobPicture view = two_ranks();
  view.nodes.resize(2, view.nodes[0]);
  view.nodes[1].name = "other";
  view.nodes[1].is_connected = true;
  const std::string text = metrics_text(view, MetricsForm::kPrometheus);
  CHECK(text.find("hvdrun_node_connected{job=\"c0ffee00\",node=\"node\\\"1\"} 0\n") != std::string::npos);
  CHECK(text.find("hvdrun_node_connected{job=\"c0ffee00\",node=\"other\"} 1\n") != std::string::npos);
}

TEST_CASE("agents on one host are one node, whose metrics come once") {
  JobSamples samples;
  samples.take(0, sample_at(1000, 500, 0));
  samples.take(0, sample_at(2000, 1500, 0));
  samples.note_back(1);
  JobPicture view = two_ranks();
  view.nodes.resize(3, view.nodes[0]);
  view.nodes[1].name = "other";
  view.ranks.resize(3, view.ranks[1]);
  view.ranks[1].node = 1;
  view.ranks[2].node = 2;
  samples.fill(view, TimePoint());
  REQUIRE(view.nodes.size() == 2);
  CHECK((view.nodes[0].is_sampled && view.nodes[0].cores == 1 && view.nodes[1].reconnects == 1));
  CHECK((view.ranks[0].node == 0 && view.ranks[1].node == 1 && view.ranks[2].node == 0));
  const std::string text = metrics_text(view, MetricsForm::kPrometheus);
  const std::string line = "hvdrun_node_busy_cores{job=\"c0ffee00\",node=\"node\\\"1\"}";
  CHECK(text.find(line) != std::string::npos);
  CHECK(text.find(line) == text.rfind(line));
}

TEST_CASE("metrics have help, type and escaped labels in either form") {
  JobSamples samples;
  samples.take(0, sample_at(1000, 500, 8000));
  JobPicture view = two_ranks();
  samples.fill(view, TimePoint());
  const std::string text = metrics_text(view, MetricsForm::kPrometheus);
  CHECK(text.find("# HELP hvdrun_rank_cpu_seconds_total ") != std::string::npos);
  CHECK(text.find("# TYPE hvdrun_rank_cpu_seconds_total counter\n"
                  "hvdrun_rank_cpu_seconds_total{job=\"c0ffee00\",node=\"node\\\"1\",rank=\"0\"} 0.5\n") !=
        std::string::npos);
  CHECK(text.find("hvdrun_ranks{job=\"c0ffee00\",state=\"running\"} 2\n") != std::string::npos);
  const std::string labels = "{job=\"c0ffee00\",node=\"node\\\"1\",rank=\"0\",operation=\"allreduce\"} ";
  for (const char* line :
       {"collectives_total", "collective_bytes_total", "collective_seconds_total", "collective_wait_seconds_total"}) {
    CHECK(text.find("# TYPE hvdrun_rank_" + std::string(line) + " counter\nhvdrun_rank_" + line + labels) !=
          std::string::npos);
  }
  CHECK(text.find("hvdrun_rank_collective_seconds_total" + labels + "1.5\n") != std::string::npos);
  CHECK(text.find("hvdrun_rank_collective_wait_seconds_total" + labels + "0.25\n") != std::string::npos);
  CHECK(text.find("# EOF") == std::string::npos);
  const std::string open = metrics_text(view, MetricsForm::kOpenMetrics);
  CHECK(open.find("# TYPE hvdrun_rank_cpu_seconds counter\nhvdrun_rank_cpu_seconds_total{") != std::string::npos);
  CHECK(open.ends_with("# EOF\n"));
}

}  // namespace hvd::launch::samples_test
