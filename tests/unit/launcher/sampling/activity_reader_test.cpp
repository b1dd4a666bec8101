#include "launcher/sampling/activity_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include <doctest/doctest.h>

#include "runtime/observe/activity.h"

namespace hvd::launch {
namespace {

// This process stands for a rank.
std::optional<RuntimeSample> read(ActivityReader& reader) {
  return reader.read(::getpid(), {::getpid()});
}

}  // namespace

TEST_CASE("what libhvd says of itself is read: counts, and the operation that the rank waits for") {
  Activity activity(0);
  activity.add(3, 300);
  activity.add_quick(4);
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
  activity.show(OpKind::kSetRemove, std::string(1000, 'x') + "\x1b[31m", ticks_now());
  sample = read(reader);
  CHECK(sample->operation == "process set remove");
  CHECK(sample->tensor == std::string(95, 'x'));
  activity.show(OpKind::kBarrier, "\x1b[31m", ticks_now());
  CHECK(read(reader)->tensor == "?[31m");
  activity.clear();
  CHECK(read(reader)->operation.empty());
}

TEST_CASE("a rank that leaves its job and joins it again goes on counting, and none is read where none is") {
  ActivityReader reader;
  CHECK(!read(reader));
  auto activity = std::make_unique<Activity>(0);
  activity->add(5, 50);
  CHECK(read(reader)->operations == 5);
  activity.reset();
  CHECK(!read(reader));
  Activity next(0);
  next.add(2, 20);
  const auto sample = read(reader);
  REQUIRE(sample);
  CHECK(sample->operations == 7);
  CHECK(sample->bytes == 70);
  reader.keep({});
  CHECK(read(reader)->operations == 2);
}

}  // namespace hvd::launch
