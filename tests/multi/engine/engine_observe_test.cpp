// What an engine tells of itself, on N ranks through the C interface: counters, stalls, the timeline.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_observe_test {
namespace {

using namespace std::chrono_literals;

hvd_counters counters_of(hvd_ctx* ctx, std::int32_t set = 0) {
  hvd_counters counters = HVD_COUNTERS_INIT;
  CHECK(outcome(hvd_counters_read(ctx, set, &counters)).error == "");
  return counters;
}

EngineOptions watching(Duration warn_after, Duration end_after) {
  EngineOptions options;
  options.stall = {warn_after, end_after};
  return options;
}

}  // namespace

TEST_CASE("counters tell what was done") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    CHECK(counters_of(ctx).operations == 0);
    for (int i = 0; i < 5; ++i) {
      CHECK(FloatOp("a", 100, 1.0F).run(ctx).error == "");
    }
    FloatOp wrong("b", 3 + static_cast<std::size_t>(rank), 1.0F);
    CHECK(wrong.run(ctx).status == HVD_MISMATCH);
    const hvd_counters counters = counters_of(ctx);
    CHECK(counters.operations == 5);
    CHECK(counters.steps == 5);
    CHECK(counters.bytes == 5 * 400);
    CHECK(counters.failures == 1);
    CHECK(counters.negotiate_s > 0);
    CHECK(counters.move_s > 0);
    CHECK(counters.negotiate_s < 1000);
  });
}

TEST_CASE("counters are those of a process set, and only of its members") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    const std::int32_t ranks[] = {0, 2};
    std::int32_t set = 0;
    CHECK(outcome(hvd_process_set_add(ctx, ranks, 2, &set)).error == "");
    hvd_counters counters = HVD_COUNTERS_INIT;
    if (rank == 1) {
      CHECK(hvd_counters_read(ctx, set, &counters) == HVD_NOT_FOUND);
    } else {
      FloatOp op("a", 10, 1.0F);
      op.op.process_set = set;
      CHECK(op.run(ctx).error == "");
      CHECK(counters_of(ctx, set).operations == 1);
      CHECK(counters_of(ctx, set).bytes == 40);
    }
    CHECK(counters_of(ctx).bytes == 0);
    CHECK(outcome(hvd_process_set_remove(ctx, set)).error == "");
    CHECK(hvd_counters_read(ctx, set, &counters) == HVD_NOT_FOUND);
    counters.size = 4;
    CHECK(hvd_counters_read(ctx, 0, &counters) == HVD_INVALID);
    CHECK(hvd_counters_read(ctx, 0, nullptr) == HVD_INVALID);
  });
}

TEST_CASE("a stall ends the job when that is asked for, and every rank learns of what and of whom") {
  for (const int late : {0, 1, 2}) {
    CAPTURE(late);
    EngineJob job({2, 1}, watching(100ms, 200ms));
    on_all(3, [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      // Nothing that all ask for goes before: a machine that is busy for 200 ms would be a stall too.
      FloatOp op(rank == late ? "other" : "lonely", 10, 1.0F);
      const Outcome ended = op.run(ctx);
      CHECK(ended.status == HVD_LOST_PEER);
      CHECK(ended.says("stalled: "));
      // Which of the two is old enough first is a matter of luck; and so is on a busy machine whether all have asked.
      const bool is_of_lonely = ended.says("ALLREDUCE 'lonely' waits for rank " + std::to_string(late)) ||
                                ended.says("ALLREDUCE 'lonely' waits for ranks ");
      CHECK((is_of_lonely || ended.says("ALLREDUCE 'other' waits for ranks ")));
    });
  }
}

TEST_CASE("a stall is found also while other tensors come and go") {
  EngineJob job({2}, watching(50ms, 100ms));
  FloatOp lonely("lonely", 10, 1.0F);
  REQUIRE(lonely.start(job.at(0)).error == "");  // before all others: it is the oldest
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    Outcome last;
    while (last.status == HVD_OK) {
      last = FloatOp("busy", 10, 1.0F).run(ctx);
    }
    // Beside one of the others, where a rank has had no processor for so long.
    CHECK(last.says("ALLREDUCE 'lonely'"));
    CHECK(last.says("for rank 1 since "));
  });
}

// Ten looks, and one for each that a busy machine makes late.
TEST_CASE("an engine that only looks for stalls sleeps in between") {
  EngineJob job({2}, watching(Duration::zero(), 500ms));
  FloatOp lonely("lonely", 10, 1.0F);
  CHECK(lonely.run(job.at(1)).says("ALLREDUCE 'lonely' waits for rank 0"));
  CHECK(counters_of(job.at(0)).sleeps < 500);
}

TEST_CASE("a timeline has the phases of every tensor, and is JSON however it ends") {
  ScratchDir folder;
  const std::string path = folder.path() + "/timeline.json";
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    CHECK(FloatOp("before", 10, 1.0F).run(ctx).error == "");
    CHECK(outcome(hvd_timeline_start(ctx, path.c_str(), 1)).error == "");
    CHECK((rank != 0 || hvd_timeline_start(ctx, path.c_str(), 1) == HVD_INVALID));
    hvd_op barrier = HVD_OP_INIT;
    barrier.kind = HVD_BARRIER;
    barrier.name = "started";
    CHECK(outcome(hvd_execute(ctx, &barrier, nullptr)).error == "");
    FloatOp a("a \"quoted\"", 10, 1.0F);
    FloatOp b("b", 7, 1.0F);
    CHECK(a.start(ctx).error == "");
    CHECK(b.start(ctx).error == "");
    CHECK(a.wait(ctx).error == "");
    CHECK(b.wait(ctx).error == "");
    FloatOp wrong("wrong", 3 + static_cast<std::size_t>(rank), 1.0F);
    CHECK(wrong.run(ctx).status == HVD_MISMATCH);
    CHECK(outcome(hvd_timeline_stop(ctx)).error == "");
    // Rank 0 writes: nobody may ask for "after" before it has stopped.
    barrier.name = "stopped";
    CHECK(outcome(hvd_execute(ctx, &barrier, nullptr)).error == "");
    CHECK(FloatOp("after", 10, 1.0F).run(ctx).error == "");
  });
  const auto events = nlohmann::json::parse(std::ifstream(path));
  std::map<std::string, int> pids;
  for (const auto& event : events) {
    if (event["name"] == "process_name") {
      pids[event["args"]["name"].get<std::string>()] = event["pid"].get<int>();
    }
  }
  CHECK(pids.contains("a \"quoted\""));
  CHECK_FALSE(pids.contains("before"));
  CHECK_FALSE(pids.contains("after"));
  std::vector<std::string> of_b;
  std::set<std::string> ranks;
  double last = 0;
  for (const auto& event : events) {
    if (event["pid"] != pids["b"] || event["ph"] == "M") {
      continue;
    }
    CHECK(event["ts"].get<double>() >= last);
    last = event["ts"].get<double>();
    if (event["ph"] == "X") {
      ranks.insert(event["name"].get<std::string>());
    } else {
      of_b.push_back(event["ph"].get<std::string>() + " " + event["name"].get<std::string>());
    }
    if (event["ph"] == "E" && event["name"] == "ALLREDUCE") {
      CHECK(event["args"] == nlohmann::json{{"dtype", "float32"}, {"shape", "[7]"}});
    }
  }
  CHECK(ranks == std::set<std::string>{"0", "1", "2"});
  CHECK(of_b.size() >= 8);
  CHECK(of_b.front() == "B NEGOTIATE_ALLREDUCE");
  CHECK(of_b[1] == "E NEGOTIATE_ALLREDUCE");
  CHECK(of_b[2] == "B ALLREDUCE");
  CHECK(of_b[3] == "B QUEUE");
  CHECK(of_b[4] == "E QUEUE");
  CHECK(of_b.back() == "E ALLREDUCE");
  CHECK(std::find(of_b.begin(), of_b.end(), "B HVD_ALLREDUCE") != of_b.end());
  const auto is_cycle = [](const auto& event) { return event["name"] == "CYCLE_START"; };
  CHECK(std::any_of(events.begin(), events.end(), is_cycle));
}

TEST_CASE("a timeline of several hosts has the stages of each part of the data, which overlap") {
  ScratchDir folder;
  const std::string path = folder.path() + "/timeline.json";
  EngineJob job({2, 2});
  constexpr std::size_t kCount = 3U << 20U;  // several parts
  on_all(4, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    CHECK(outcome(hvd_timeline_start(ctx, path.c_str(), 0)).error == "");
    CHECK(FloatOp("large", kCount, 1.0F).run(ctx).error == "");
    CHECK(FloatOp("small", 10, 1.0F).run(ctx).error == "");
    CHECK(outcome(hvd_timeline_stop(ctx)).error == "");
  });
  std::map<std::string, int> rows;
  std::map<std::string, std::size_t> bytes;
  std::map<std::string, int> parts;
  for (const auto& event : nlohmann::json::parse(std::ifstream(path))) {
    if (event["name"] == "thread_name") {
      ++rows[event["args"]["name"].get<std::string>()];
    } else if (event["ph"] == "X" && event["pid"] == 0) {
      const auto stage = event["name"].get<std::string>();
      CHECK((event["tid"].get<int>() > 0 && event["ts"].get<double>() >= 0 && event["dur"].get<double>() >= 0));
      bytes[stage] += event["args"]["bytes"].get<std::size_t>();
      ++parts[stage];
    }
  }
  CHECK(rows == std::map<std::string, int>{
                    {"this host: pack and reduce", 1}, {"between hosts", 1}, {"this host: take the result", 1}});
  for (const char* stage : {"HOST_REDUCE", "WIRE", "HOST_SHARE"}) {
    CHECK(bytes[stage] == (kCount + 10) * sizeof(float));
    CHECK(parts[stage] > 2);
  }
}

TEST_CASE("a timeline that cannot be made is refused, and one may follow another") {
  ScratchDir folder;
  EngineJob job({1});
  hvd_ctx* ctx = job.at(0);
  CHECK(hvd_timeline_stop(ctx) == HVD_OK);
  CHECK(hvd_timeline_start(ctx, "/no/such/folder/x", 0) == HVD_NOT_FOUND);
  CHECK(hvd_timeline_start(ctx, nullptr, 0) == HVD_INVALID);
  for (int i = 0; i < 20; ++i) {
    const std::string path = folder.path() + "/" + std::to_string(i);
    CHECK(outcome(hvd_timeline_start(ctx, path.c_str(), 0)).error == "");
    CHECK(FloatOp("a", 10, 1.0F).run(ctx).error == "");
    CHECK(outcome(hvd_timeline_stop(ctx)).error == "");
    const auto events = nlohmann::json::parse(std::ifstream(path));
    CHECK(events.size() > 5);
    CHECK(events[1]["args"]["name"] == "a");
  }
}

TEST_CASE("ranks that are slow, and no slower than that, are left alone") {
  EngineJob job({2}, watching(100s, 200s));
  on_all(2, [&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(50ms);  // sleeps: being late is what is tested
    }
    CHECK(FloatOp("a", 10, 1.0F).run(job.at(rank)).error == "");
  });
}

TEST_CASE("an idle engine is woken by nothing") {
  EngineJob job({2}, watching(20ms, 200s));
  on_all(2, [&](int rank) { CHECK(FloatOp("a", 10, 1.0F).run(job.at(rank)).error == ""); });
  // It comes to rest, on a busy machine late.
  const Deadline deadline = test_deadline();
  bool is_woken = true;
  while (is_woken && !deadline.has_passed()) {
    const auto before = counters_of(job.at(0)).sleeps;
    std::this_thread::sleep_for(200ms);  // sleeps: that nothing happens meanwhile is what is tested
    is_woken = counters_of(job.at(0)).sleeps != before;
  }
  CHECK(!is_woken);
}

}  // namespace hvd::test::engine_observe_test
