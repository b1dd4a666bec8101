#include "launcher/sampling/activity_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include <doctest/doctest.h>

#include "runtime/observe/activity.h"

namespace hvd::launch::activity_reader_test {
namespace {

// This process stands for a rank.
std::optional<RuntimeSample> read(ActivityReader& reader) {
  return reader.read(::getpid(), {::getpid()});
}

}  // namespace

TEST_CASE("what libhvd says of itself is read: counts, and the operation that the rank waits for") {
  Activity activity(0);
  activity.add({OpKind::kAllreduce, 3, 300, 50, 70, 100});
  activity.add_quick(OpKind::kBarrier, 4, 0);
  ActivityReader reader;
  auto sample = read(reader);
  REQUIRE(sample);
  CHECK(sample->operations == 4);
  CHECK(sample->bytes == 304);
  CHECK(sample->operation.empty());

  activity.show(OpKind::kAllreduce, "layer4.weight", ticks_now());
  sample = read(reader);
  CHECK(sample->operation == "allreduce");
  CHECK(sample->tensor == "layer4.weight");
  CHECK(sample->for_ms < 60'000);
  activity.show(OpKind::kAllreduce, "allreduce.layer4.weight", ticks_now());
  CHECK(read(reader)->tensor == "layer4.weight");
  activity.show(OpKind::kBroadcast, "allreduce.layer4.weight", ticks_now());
  CHECK(read(reader)->tensor == "allreduce.layer4.weight");
  activity.show(OpKind::kSetRemove, std::string(1000, 'x') + "\x1b[31m", ticks_now());
  sample = read(reader);
  CHECK(sample->operation == "process set remove");
  CHECK(sample->tensor == std::string(95, 'x'));
  activity.show(OpKind::kBarrier, "\x1b[31m", ticks_now());
  CHECK(read(reader)->tensor == "?[31m");
  activity.clear();
  CHECK(read(reader)->operation.empty());
}

TEST_CASE("times of operations by kind: all of a step's, and seventeen times that of a quick one that was timed") {
  Activity activity(0);
  std::uint64_t began = 0;
  std::uint64_t ticks = 0;
  std::uint64_t inner_ticks = 0;
  double us = 0;
  do {  // again where the processor was taken between two reads of the clocks
    began = ticks_now();
    const auto start = std::chrono::steady_clock::now();
    inner_ticks = ticks_now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(30)) {
    }
    inner_ticks = ticks_now() - inner_ticks;
    us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    ticks = ticks_now() - began;
  } while (ticks > inner_ticks + inner_ticks / 10);
  activity.add({OpKind::kAllgather, 1, 8, began, began + ticks / 2, began + ticks});
  // Asked for at the same time: its time begins at the end of the one before.
  activity.add({OpKind::kBroadcast, 1, 8, began, began + ticks / 2, began + ticks + ticks / 2});
  CHECK(activity.times_quick(OpKind::kAllreduce));
  activity.add_quick(OpKind::kAllreduce, 4, ticks);
  CHECK_FALSE(activity.times_quick(OpKind::kAllreduce));
  CHECK(activity.times_quick(OpKind::kBarrier));
  for (int i = 0; i < 16; ++i) {
    activity.add_quick(OpKind::kAllreduce, 4, 0);
  }
  CHECK(activity.times_quick(OpKind::kAllreduce));
  ActivityReader reader;
  const auto sample = read(reader);
  REQUIRE((sample && sample->kinds.size() == 3));
  const OperationSample& quick = sample->kinds[0];
  const OperationSample& engine = sample->kinds[1];
  CHECK((quick.kind == "allreduce" && quick.operations == 17 && quick.bytes == 68 && quick.waited_us == 0));
  CHECK(static_cast<double>(quick.lasted_us) == doctest::Approx(17 * us).epsilon(0.3));
  CHECK(static_cast<double>(engine.lasted_us) == doctest::Approx(us).epsilon(0.3));
  CHECK(static_cast<double>(engine.waited_us) == doctest::Approx(us / 2).epsilon(0.3));
  CHECK(static_cast<double>(sample->kinds[2].lasted_us) == doctest::Approx(us / 2).epsilon(0.3));
  CHECK(sample->kinds[2].waited_us == 0);
  for (int i = 0; i < 100; ++i) {
    CHECK(read(reader)->kinds[1].lasted_us >= engine.lasted_us);
  }
}

TEST_CASE("a rank that leaves its job and joins it again goes on counting, and none is read where none is") {
  ActivityReader reader;
  CHECK(!read(reader));
  auto activity = std::make_unique<Activity>(0);
  activity->add({OpKind::kAllreduce, 5, 50, 0, 0, 0});
  CHECK(read(reader)->operations == 5);
  CHECK(reader.past(::getpid()).operations == 0);
  activity->add({OpKind::kAllreduce, 1, 10, 0, 0, 0});
  activity.reset();
  CHECK(!read(reader));
  CHECK(reader.past(::getpid()).operations == 6);  // all of them, also what came after the last look
  Activity next(0);
  next.add({OpKind::kAllreduce, 2, 20, 0, 0, 0});
  next.add({OpKind::kAllgather, 1, 8, 0, 0, 0});
  const auto sample = read(reader);
  REQUIRE(sample);
  CHECK(sample->operations == 9);
  CHECK(sample->bytes == 88);
  REQUIRE(sample->kinds.size() == 2);
  CHECK((sample->kinds[0].kind == "allreduce" && sample->kinds[0].operations == 8 && sample->kinds[0].bytes == 80));
  CHECK((sample->kinds[1].kind == "allgather" && sample->kinds[1].operations == 1));
  reader.keep({});
  CHECK(read(reader)->operations == 3);
}

}  // namespace hvd::launch::activity_reader_test
