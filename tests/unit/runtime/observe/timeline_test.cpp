// runtime/observe: the timeline's ring, its file, and what neither may do.
#include "runtime/observe/timeline.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "runtime/observe/timeline_file.h"
#include "runtime/observe/timeline_text.h"
#include "tests/multi/thread_job.h"

namespace hvd::timeline_test {
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
    record.ticks = i;
    CHECK(ring.is_filling() == (i > 4));
    CHECK(ring.put({&record, 1}));
  }
  CHECK_FALSE(ring.put({&record, 1}));
  CHECK_FALSE(ring.has_room(1));
  for (std::uint32_t i = 0; i < 8; ++i) {
    CHECK(ring.take()->ticks == i);
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
      record.tensor = i & 0xfffffU;
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
      REQUIRE(+record->tensor == i);
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
  const std::vector<std::string> names = {
      "", "a\"b\\c\n\x01", "\xff\xfe", "h\xc3\xa9", std::string(40, 'x'), std::string(80, 'y'), std::string(5000, 'z')};
  for (const std::string& name : names) {
    Timeline::Moment now(timeline);
    now.asked({0, name}, OpKind::kAllgather, 0);
    now.ready({0, name}, OpKind::kAllgather, true);
    now.done({0, name}, OpKind::kAllgather, Dtype::kBfloat16, std::vector<std::int64_t>{2, 3});
  }
  Timeline::Moment(timeline).asked({3, "set"}, OpKind::kAllgather, 0);
  Timeline::Moment(timeline).cycle();
  // The writer comes by every 250 ms, and may be at it just now: then it is not whole for a moment.
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

TEST_CASE("a new file replaces an old one, however long that was") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  std::ofstream(path) << std::string(100'000, 'x');
  Timeline timeline({}, kNoFailure);
  REQUIRE(timeline.start(path, true).ok());
  CHECK(read_json(path).size() == 1);  // when it began
  timeline.stop();
  CHECK(read_json(path).size() == 1);
}

TEST_CASE("a full ring drops and counts, and what has begun ends") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) {
    names.push_back(std::to_string(i));
  }
  TimelineOptions options;
  options.ring_records = 8192;
  Timeline timeline(options, kNoFailure);
  REQUIRE(timeline.start(path, false).ok());
  const Deadline patience = test::test_deadline();
  while (timeline.dropped() == 0) {
    REQUIRE_FALSE(patience.has_passed());
    Timeline::Moment now(timeline);
    now.ready({0, "b"}, OpKind::kAllreduce, true);
    now.done({0, "b"}, OpKind::kAllreduce, Dtype::kFloat32, std::vector<std::int64_t>(8, 1));
    now.ready({0, "b"}, OpKind::kAllgather, true);
    // Each phase that begins also ends, and the ends take more records than the beginnings.
    for (const std::string& name : names) {
      now.ready({0, name}, OpKind::kAllreduce, true);
    }
    for (const std::string& name : names) {
      now.begin({0, name}, OpKind::kAllreduce, TracePhase::kMove);
      now.pause({0, name}, OpKind::kAllreduce);
      now.done({0, name}, OpKind::kAllreduce, Dtype::kFloat32, std::vector<std::int64_t>(8, 1));
    }
    for (int i = 0; i < 100'000; ++i) {
      now.begin({0, "a"}, OpKind::kAllreduce, TracePhase::kMove);
      now.pause({0, "a"}, OpKind::kAllreduce);
    }
    now.done({0, "b"}, OpKind::kAllgather, Dtype::kFloat32, std::vector<std::int64_t>(8, 2));  // no room for the shape
  }
  timeline.stop();
  std::map<int, int> open;  // by tensor
  std::uint64_t dropped = 0;
  int wrong_shapes = 0;
  for (const Json& event : read_json(path)) {
    const bool has_shape = event.contains("args") && event["args"].contains("shape");
    const std::string begins = event["name"] == "ALLGATHER" ? "[2" : "[1";
    wrong_shapes += has_shape && event["args"]["shape"].get<std::string>().find(begins) != 0 ? 1 : 0;
    open[event["pid"]] += event["ph"] == "B" ? 1 : event["ph"] == "E" ? -1 : 0;
    dropped += event["name"] == "DROPPED" ? event["args"]["records"].get<std::uint64_t>() : 0;
  }
  CHECK(open.size() > 2);
  CHECK(wrong_shapes == 0);
  CHECK(std::all_of(open.begin(), open.end(), [](const auto& of) { return of.second == 0; }));
  CHECK(dropped > 0);
}

TEST_CASE("what is off costs nothing and writes nothing; an end without its beginning is none") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  Timeline::Moment(timeline).begin({0, "a"}, OpKind::kAllreduce, TracePhase::kMove);
  REQUIRE(timeline.start(path, false).ok());
  CHECK(timeline.start(path, false).error().code() == Code::kInvalid);
  Timeline::Moment(timeline).pause({0, "a"}, OpKind::kAllreduce);
  Timeline::Moment(timeline).done({0, "a"}, OpKind::kAllreduce, Dtype::kFloat32, {});
  Timeline::Moment(timeline).cycle();
  const std::uint64_t began = timeline.begin_stage();
  CHECK(began != 0);
  timeline.stop();
  timeline.end_stage(Stage::kWire, began, 8);
  CHECK(timeline.begin_stage() == 0);
  Timeline::Moment(timeline).begin({0, "b"}, OpKind::kAllreduce, TracePhase::kMove);
  CHECK(read_json(path).size() == 1);
}

TEST_CASE("a tensor's events are in the order in which they happen, whatever comes at once") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  REQUIRE(timeline.start(path, false).ok());
  const std::vector<std::int64_t> long_shape = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const std::span<const std::int64_t> shape : {std::span(long_shape).first(2), std::span(long_shape).first(5),
                                                    std::span(long_shape), std::span(long_shape).first(0)}) {
    Timeline::Moment(timeline).asked({0, "a"}, OpKind::kAllreduce, 1);
    Timeline::Moment(timeline).asked({0, "a"}, OpKind::kAllreduce, 0);
    Timeline::Moment now(timeline);
    now.ready({0, "a"}, OpKind::kAllreduce, true);
    now.begin({0, "a"}, OpKind::kAllreduce, TracePhase::kPack);
    now.begin({0, "a"}, OpKind::kAllreduce, TracePhase::kMove);
    now.begin({0, "a"}, OpKind::kAllreduce, TracePhase::kUnpack);
    now.done({0, "a"}, OpKind::kAllreduce, Dtype::kFloat32, shape);
  }
  timeline.stop();
  std::string order;
  std::string shapes;
  double last = 0;
  for (const Json& event : read_json(path)) {
    if (event["ph"] != "M") {
      order += event["ph"].get<std::string>() + " " + event["name"].get<std::string>() + "; ";
      CHECK(event["ts"].get<double>() >= last);
      last = event["ts"];
      shapes += event.contains("args") ? event["args"]["shape"].get<std::string>() : "";
    }
  }
  const std::string once =
      "B NEGOTIATE_ALLREDUCE; X 1; X 0; E NEGOTIATE_ALLREDUCE; B ALLREDUCE; B QUEUE; E QUEUE; "
      "B MEMCPY_IN_FUSION_BUFFER; E MEMCPY_IN_FUSION_BUFFER; B HVD_ALLREDUCE; E HVD_ALLREDUCE; "
      "B MEMCPY_OUT_FUSION_BUFFER; E MEMCPY_OUT_FUSION_BUFFER; E ALLREDUCE; ";
  CHECK(order == once + once + once + once);
  CHECK(shapes == "[1, 2][1, 2, 3, 4, 5][]");
}

TEST_CASE("events of a tensor nest, also where it is asked for again before its operation has ended") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  REQUIRE(timeline.start(path, false).ok());
  for (int step = 0; step < 2; ++step) {
    Timeline::Moment(timeline).asked({0, "a"}, OpKind::kAllreduce, 0);
    Timeline::Moment(timeline).asked({0, "a"}, OpKind::kAllreduce, step == 0 ? 1 : 2);
    Timeline::Moment(timeline).ready({0, "a"}, OpKind::kAllreduce, true);
    Timeline::Moment(timeline).begin({0, "a"}, OpKind::kAllreduce, TracePhase::kMove);
    Timeline::Moment(timeline).asked({0, "a"}, OpKind::kAllreduce, step == 0 ? 2 : 1);
    Timeline::Moment(timeline).done({0, "a"}, OpKind::kAllreduce, Dtype::kFloat32, {});
  }
  Timeline::Moment(timeline).ready({0, "a"}, OpKind::kAllreduce, false);
  timeline.stop();
  std::map<int, std::vector<std::string>> open;  // by row
  int rows = 0;
  for (const Json& event : read_json(path)) {
    const std::string name = event["name"];
    if (event["ph"] == "B") {
      open[event["tid"]].push_back(name);
    } else if (event["ph"] == "E") {
      REQUIRE_FALSE(open[event["tid"]].empty());
      CHECK(open[event["tid"]].back() == name);
      open[event["tid"]].pop_back();
    }
    rows += name == "thread_name" ? 1 : 0;
    CHECK((name != "2" || event["tid"] == 1));
  }
  CHECK(open.size() == 2);
  CHECK((open[0].empty() && open[1].empty()));
  CHECK(rows == 1);
}

TEST_CASE("while an operation waits the file says until when, and is whole whichever end is longer") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  REQUIRE(timeline.start(path, false).ok());
  const Deadline patience = test::test_deadline();
  // Waits for two ends with different times. Their writer may be at it just now.
  const auto await_ends = [&] {
    std::set<double> ends;
    while (ends.size() < 2) {
      REQUIRE_FALSE(patience.has_passed());
      const Json now = Json::parse(std::ifstream(path), nullptr, false);
      if (!now.is_discarded() && now.back()["name"] == "TIMELINE_END") {
        ends.insert(now.back()["ts"].get<double>());
      }
      std::this_thread::yield();
    }
  };
  Timeline::Moment(timeline).asked({0, "a"}, OpKind::kBarrier, 0);
  await_ends();
  Timeline::Moment(timeline).ready({0, "a"}, OpKind::kBarrier, false);  // this event is shorter than that end
  for (Json now; now.is_discarded() || now.empty() || now.back()["name"] != "NEGOTIATE_BARRIER";) {
    REQUIRE_FALSE(patience.has_passed());
    now = Json::parse(std::ifstream(path), nullptr, false);
    std::this_thread::yield();
  }
  Timeline::Moment(timeline).asked({0, "a"}, OpKind::kBarrier, 0);
  timeline.stop();
  const Json events = read_json(path);
  CHECK(events.back()["name"] == "TIMELINE_END");
  CHECK(events.back()["ts"].get<double>() >= events[events.size() - 2]["ts"].get<double>());
  int ends = 0;
  for (const Json& event : events) {
    ends += event["name"] == "TIMELINE_END" ? 1 : 0;
  }
  CHECK(ends == 1);
}

TEST_CASE("a file that is being written is nobody else's, and free again after that") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline first({}, kNoFailure);
  Timeline second({}, kNoFailure);
  REQUIRE(first.start(path, false).ok());
  Timeline::Moment(first).asked({0, "a"}, OpKind::kBarrier, 0);
  const Result<void> refused = second.start(path, false);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Code::kInvalid);
  CHECK(refused.error().message().find("another process writes its own there") != std::string::npos);
  first.stop();
  CHECK(read_json(path).back()["name"] == "TIMELINE_END");
  CHECK(second.start(path, false).ok());
  CHECK(first.start("/dev/null", false).ok());
  Timeline third({}, kNoFailure);
  CHECK(third.start("/dev/null", false).ok());
}

TEST_CASE("a job that begins anew leaves its earlier timelines") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  CHECK(unused_timeline_path(path) == path);
  std::ofstream(path) << "[]";
  CHECK(unused_timeline_path(path) == folder.path() + "/t.2.json");
  std::ofstream(folder.path() + "/t.2.json") << "[]";
  CHECK(unused_timeline_path(path) == folder.path() + "/t.3.json");
  std::ofstream(folder.path() + "/.trace") << "[]";
  CHECK(unused_timeline_path(folder.path() + "/.trace") == folder.path() + "/.trace.2");
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

TEST_CASE("where nothing can be overwritten the file is only appended to, and whole at the end") {
  test::ScratchDir folder;
  const std::string path = folder.path() + "/t.json";
  Timeline timeline({}, kNoFailure);
  // What is written to such a descriptor comes at the end, whatever place is asked for.
  const auto open_appending = [&path] {
    return TimelineFile{Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)), path, true};
  };
  REQUIRE(timeline.start(open_appending, false).ok());
  CHECK_FALSE(timeline.start(open_appending, false).ok());
  const auto text_now = [&path] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const Deadline patience = test::test_deadline();
  std::string seen;
  for (const std::string name : {"one", "two", "three"}) {
    Timeline::Moment(timeline).asked({0, name}, OpKind::kAllreduce, 0);
    while (text_now().find('"' + name + '"') == std::string::npos) {
      REQUIRE_FALSE(patience.has_passed());
      std::this_thread::yield();
    }
    CHECK(text_now().starts_with(seen));
    seen = text_now();
  }
  timeline.stop();
  CHECK(text_now().starts_with(seen));
  std::vector<std::string> names;
  for (const Json& event : read_json(path)) {
    names.push_back(event["name"]);
  }
  CHECK(std::count(names.begin(), names.end(), "process_name") == 3);
  CHECK(std::count(names.begin(), names.end(), "NEGOTIATE_ALLREDUCE") == 3);
  CHECK(std::count(names.begin(), names.end(), "TIMELINE_END") == 1);
}

TEST_CASE("JSON text is UTF-8, whatever comes") {
  CHECK(json_text("\xc0\x80") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json_text("\xed\xa0\x80") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json_text("\xe2\x82") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json_text("\xf0\x9f\x98\x80\x7f") == "\xf0\x9f\x98\x80\\u007f");
}

}  // namespace hvd::timeline_test
