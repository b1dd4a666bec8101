// runtime/observe: the timeline's ring, its file, and what neither may do.
#include "runtime/observe/timeline.h"

#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "runtime/observe/timeline_writer.h"
#include "tests/multi/thread_job.h"

namespace hvd {
namespace {

using Json = nlohmann::json;

Json read_json(const std::string& path) {
  return Json::parse(std::ifstream(path));
}

const auto kNoFailure = [](const Error& why) { FAIL(why.message()); };

}  // namespace

TEST_CASE("a ring gives back what was put, in order, and refuses when it is full") {
  TraceRing ring(8);
  TraceRecord record;
  for (std::uint32_t i = 0; i < 8; ++i) {
    record.tensor = i;
    CHECK(ring.put({&record, 1}));
  }
  CHECK_FALSE(ring.put({&record, 1}));
  CHECK_FALSE(ring.has_room(1));
  for (std::uint32_t i = 0; i < 8; ++i) {
    CHECK(ring.take()->tensor == i);
  }
  CHECK_FALSE(ring.take());
  const std::vector<TraceRecord> nine(9);
  CHECK_FALSE(ring.put(nine));
}

TEST_CASE("between two threads no record is lost, doubled or torn") {
  constexpr std::uint32_t kRecords = 200'000;
  TraceRing ring(64);
  std::thread putter([&ring] {
    for (std::uint32_t i = 0; i < kRecords;) {
      TraceRecord record;
      record.tensor = i;
      record.ticks = ~std::uint64_t{i};
      if (ring.put({&record, 1})) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (std::uint32_t i = 0; i < kRecords;) {
    if (const auto record = ring.take()) {
      REQUIRE(record->tensor == i);
      REQUIRE(record->ticks == ~std::uint64_t{i});
      ++i;
    } else {
      std::this_thread::yield();
    }
  }
  putter.join();
}

TEST_CASE("the file is whole JSON while it is written, and names may hold anything") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  REQUIRE(timeline.start(path, true).ok());
  const std::vector<std::string> names = {"",
                                          "a\"b\\c\n\x01",
                                          "\xff\xfe",
                                          "h\xc3\xa9",
                                          std::string(40, 'x'),
                                          std::string(80, 'y'),
                                          std::string(5000, 'z'),
                                          std::string("set\0"
                                                      "3",
                                                      5)};
  for (const std::string& name : names) {
    timeline.asked(name, OpKind::kAllgather, 0);
    timeline.ready(name, OpKind::kAllgather, true);
    timeline.done(name, OpKind::kAllgather, Dtype::kBfloat16, std::vector<std::int64_t>{2, 3});
  }
  timeline.cycle();
  // The writer comes by every 50 ms, and may be at it just now: then it is not whole for a moment.
  const Deadline patience = test::test_deadline();
  const auto events_now = [&] {
    const Json now = Json::parse(std::ifstream(path), nullptr, false);
    return now.is_discarded() ? 0 : now.size();
  };
  while (events_now() < 8 * 8) {
    REQUIRE_FALSE(patience.has_passed());
    std::this_thread::yield();
  }
  timeline.stop();
  std::vector<std::string> found;
  for (const Json& event : read_json(path)) {
    if (event["name"] == "process_name") {
      found.push_back(event["args"]["name"]);
    }
  }
  CHECK(found == std::vector<std::string>{"", "a\"b\\c\n\x01", "\xef\xbf\xbd\xef\xbf\xbd", "h\xc3\xa9",
                                          std::string(40, 'x'), std::string(80, 'y'), std::string(240, 'z'),
                                          "set of process set 3"});
}

TEST_CASE("a full ring drops and counts, and what has begun ends") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  TimelineOptions options;
  options.ring_records = 8192;
  Timeline timeline(options, kNoFailure);
  REQUIRE(timeline.start(path, false).ok());
  for (int i = 0; i < 300'000; ++i) {
    timeline.begin("a", OpKind::kAllreduce, TracePhase::kMove);
    timeline.end("a", OpKind::kAllreduce, TracePhase::kMove);
  }
  timeline.stop();
  int open = 0;
  std::uint64_t dropped = 0;
  for (const Json& event : read_json(path)) {
    open += event["ph"] == "B" ? 1 : event["ph"] == "E" ? -1 : 0;
    CHECK((open == 0 || open == 1));
    dropped += event["name"] == "DROPPED" ? event["args"]["records"].get<std::uint64_t>() : 0;
  }
  CHECK(open == 0);
  CHECK(dropped > 0);
}

TEST_CASE("what is off costs nothing and writes nothing; an end without its beginning is none") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  timeline.begin("a", OpKind::kAllreduce, TracePhase::kOperation);
  REQUIRE(timeline.start(path, false).ok());
  CHECK(timeline.start(path, false).error().code() == Code::kInvalid);
  timeline.end("a", OpKind::kAllreduce, TracePhase::kOperation);
  timeline.done("a", OpKind::kAllreduce, Dtype::kFloat32, {});
  timeline.cycle();
  timeline.stop();
  timeline.begin("b", OpKind::kAllreduce, TracePhase::kOperation);
  CHECK(read_json(path).size() == 1);
}

TEST_CASE("a full disk ends the timeline with a word, and nothing else") {
  std::atomic<int> failures = 0;
  Timeline timeline({}, [&failures](const Error& why) {
    CHECK(why.message().find("'/dev/full'") != std::string::npos);
    ++failures;
  });
  CHECK(timeline.start("/dev/full", false).error().code() == Code::kResource);
  CHECK(timeline.start("/no/such/folder/t", false).error().message().find("/no/such/folder/t") != std::string::npos);
  CHECK(failures == 0);
}

TEST_CASE("JSON text is UTF-8, whatever comes") {
  CHECK(json_text("\xc0\x80") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json_text("\xed\xa0\x80") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json_text("\xe2\x82") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json_text("\xf0\x9f\x98\x80\x7f") == "\xf0\x9f\x98\x80\\u007f");
}

}  // namespace hvd
