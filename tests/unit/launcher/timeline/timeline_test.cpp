#include <sstream>

#include <doctest/doctest.h>

#include "launcher/timeline/time_spans.h"
#include "launcher/timeline/timeline_reader.h"
#include "launcher/timeline/timeline_tables.h"
#include "launcher/timeline/trace_events.h"

namespace hvd::launch::timeline_test {
namespace {

Result<TimelineSummary> summary_of_text(const std::string& text) {
  std::istringstream in(text);
  TimelineReader reader;
  HVD_TRY_ASSIGN(const bool is_cut, read_trace(in, [&reader](const TraceEvent& event) { reader.add(event); }));
  return reader.finish(is_cut);
}

Result<TimelineSummary> summary_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return summary_of_text(text);
}

std::string event(const std::string& kind, const std::string& name, int pid, double at, const std::string& more = "") {
  return R"({"name":")" + name + R"(","ph":")" + kind + R"(","pid":)" + std::to_string(pid) + R"(,"tid":0,"ts":)" +
         std::to_string(at) + more + "},";
}

std::string tensor(int pid, const std::string& name) {
  return R"({"name":"process_name","ph":"M","pid":)" + std::to_string(pid) + R"(,"args":{"name":")" + name + R"("}},)";
}

// Rank 0 asks at `at`, rank 1 `late_us` later; 100 us of work follow.
std::vector<std::string> allreduce(int pid, double at, double late_us, const std::string& shape = "[1000]") {
  const double begun = at + late_us;
  return {event("B", "NEGOTIATE_ALLREDUCE", pid, at),
          event("X", "0", pid, at, R"(,"dur":0)"),
          event("X", "1", pid, begun, R"(,"dur":0)"),
          event("E", "NEGOTIATE_ALLREDUCE", pid, begun + 10),
          event("B", "ALLREDUCE", pid, begun + 10),
          event("B", "QUEUE", pid, begun + 10),
          event("E", "QUEUE", pid, begun + 20),
          event("B", "HVD_ALLREDUCE", pid, begun + 20),
          event("E", "HVD_ALLREDUCE", pid, begun + 100),
          event("E", "ALLREDUCE", pid, begun + 100, R"(,"args":{"dtype":"float32","shape":")" + shape + R"("})")};
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

TEST_CASE("time spans: a moment counts once, in whatever order they come") {
  TimeSpans spans;
  CHECK(spans.total() == 0);
  spans.add(10, 20);
  spans.add(15, 30);  // over the one before
  spans.add(50, 60);
  spans.add(0, 5);
  spans.add(4, 11);   // joins two
  spans.add(55, 52);  // none
  CHECK(spans.total() == doctest::Approx(40));
  TimeSpans others;
  others.add(25, 35);
  others.add(spans);
  CHECK(others.total() == doctest::Approx(45));
}

TEST_CASE("timeline: stages between hosts are phases, and are no operations") {
  std::vector<std::string> lines = {"[", tensor(1, "allreduce.a")};
  append(lines, allreduce(1, 0, 0));
  lines.push_back(R"({"name":"WIRE","ph":"X","pid":0,"tid":2,"ts":20.0,"dur":50.0,"args":{"bytes":4000}},)");
  lines.push_back(R"({"name":"WIRE","ph":"X","pid":0,"tid":2,"ts":60.0,"dur":30.0,"args":{"bytes":4000}},)");
  lines.push_back(R"({"name":"HOST_SHARE","ph":"X","pid":0,"tid":3,"ts":95.0,"dur":-1}])");
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  const TimelineSummary& summary = read.value();
  CHECK(summary.all.count == 1);
  CHECK(summary.tensors.size() == 1);
  CHECK(summary.ranks.size() == 2);
  REQUIRE(summary.phases.size() == 4);
  CHECK((summary.phases[1].name == "WIRE" && summary.phases[1].count == 2));
  CHECK(summary.phases[1].seconds == doctest::Approx(70e-6));  // they overlap
}

TEST_CASE("timeline: operations, phases, and the rank that the others waited for") {
  std::vector<std::string> lines = {"[", tensor(1, "allreduce.a"), tensor(2, "allreduce.b")};
  append(lines, allreduce(1, 0, 1000));
  append(lines, allreduce(2, 0, 1000, "[10, 20]"));  // under way together: the time counts once
  append(lines, allreduce(1, 2000, 0));
  lines.push_back("]");
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  const TimelineSummary& summary = read.value();
  CHECK(summary.seconds == doctest::Approx(2100e-6));
  CHECK_FALSE(summary.is_cut);
  CHECK(summary.all.count == 3);
  CHECK(summary.all.bytes == 4000 + 800 + 4000);
  CHECK(summary.all.waited_s == doctest::Approx(1000e-6));
  CHECK(summary.all.worked_s == doctest::Approx(200e-6));
  REQUIRE(summary.operations.size() == 1);
  CHECK(summary.operations[0].name == "allreduce");
  CHECK(summary.operations[0].count == 3);
  REQUIRE(summary.ranks.size() == 2);
  CHECK(summary.ranks[0].rank == 1);
  CHECK(summary.ranks[0].last == 3);
  CHECK(summary.ranks[0].waited_for_s == doctest::Approx(1000e-6));
  CHECK(summary.ranks[1].waited_for_s == 0);
  REQUIRE(summary.phases.size() == 2);
  CHECK(summary.phases[0].name == "HVD_ALLREDUCE");
  CHECK(summary.phases[0].count == 3);
  CHECK(summary.phases[0].seconds == doctest::Approx(160e-6));
  REQUIRE(summary.tensors.size() == 2);
  CHECK(summary.tensors[0].name == "allreduce.a");
  CHECK(summary.tensors[0].count == 2);
  CHECK(summary.tensors[1].bytes == 800);

  const std::string text = timeline_tables("t.json", summary, 1);
  CAPTURE(text);
  CHECK(
      text.starts_with("t.json: 2.1 ms, 2 ranks, 3 operations on 2 tensors\n"
                       "Operations waited for a rank for 1.0 ms, 48 % of the time; most of all it was rank 1, for 1.0 "
                       "ms.\nThey were at work for 200 us, 10 %.\n"));
  CHECK(text.find("allreduce.a") != std::string::npos);
  CHECK(text.find("allreduce.b") == std::string::npos);
  CHECK(text.find("and 1 tensor more: --json has all\n") != std::string::npos);
}

TEST_CASE("timeline: a file that names no rank is not said to have 0 ranks") {
  const auto read = summary_of({"[", tensor(1, "t"), event("B", "NEGOTIATE_ALLREDUCE", 1, 0),
                                event("E", "NEGOTIATE_ALLREDUCE", 1, 40), event("B", "ALLREDUCE", 1, 40),
                                event("E", "ALLREDUCE", 1, 40)});
  REQUIRE(read.ok());
  CHECK(timeline_tables("t.json", read.value(), 1).starts_with("t.json: 40.0 us, 1 operation on 1 tensor\n"));
}

TEST_CASE("timeline: of several ranks only the last one was waited for, since the others had asked") {
  std::vector<std::string> lines = {"[", tensor(1, "t"), event("B", "NEGOTIATE_BROADCAST", 1, 0)};
  for (const auto& [rank, at] :
       std::vector<std::pair<const char*, double>>{{"2", 0}, {"0", 400}, {"3", 900}, {"1", 300}}) {
    lines.push_back(event("X", rank, 1, at));
  }
  append(lines, {event("E", "NEGOTIATE_BROADCAST", 1, 900), event("B", "BROADCAST", 1, 900),
                 event("E", "BROADCAST", 1, 1000)});
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  CHECK(read.value().all.waited_s == doctest::Approx(900e-6));
  REQUIRE(read.value().ranks.size() == 4);
  CHECK(read.value().ranks[0].rank == 3);
  CHECK(read.value().ranks[0].waited_for_s == doctest::Approx(500e-6));
  CHECK(read.value().ranks[1].waited_for_s == 0);
}

TEST_CASE("timeline: a negotiation that begins before the last operation has ended spoils neither") {
  std::vector<std::string> lines = {"[", tensor(1, "t")};
  for (int i = 0; i < 3; ++i) {
    const double at = 1000.0 * i;
    append(lines, {event("B", "NEGOTIATE_ALLREDUCE", 1, at), event("X", "1", 1, at),
                   event("B", "NEGOTIATE_ALLREDUCE", 1, at - 5),  // asked for on the quick path too
                   event("E", "NEGOTIATE_ALLREDUCE", 1, at + 50), event("B", "ALLREDUCE", 1, at + 50),
                   event("B", "NEGOTIATE_ALLREDUCE", 1, at + 60),  // asked again while it is on the device
                   event("E", "NEGOTIATE_ALLREDUCE", 1, at + 70), event("E", "ALLREDUCE", 1, at + 100)});
  }
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  CHECK(read.value().all.count == 3);
  CHECK(read.value().phases.empty());
  CHECK(read.value().all.waited_s == doctest::Approx(3 * 65e-6));  // from -5 to 50, and from 60 to 70
  CHECK(read.value().all.worked_s == doctest::Approx(3 * 50e-6));
}

TEST_CASE("timeline: what has no end, and what runs on other ranks only") {
  std::vector<std::string> lines = {"[", tensor(1, "t"), tensor(2, "set")};
  append(lines, {event("B", "ALLREDUCE", 1, 0), event("B", "ALLREDUCE", 1, 100), event("E", "ALLREDUCE", 1, 150)});
  append(lines, {event("B", "NEGOTIATE_ALLREDUCE", 2, 200), event("X", "1", 2, 200), event("X", "2", 2, 700),
                 event("E", "NEGOTIATE_ALLREDUCE", 2, 710)});
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  CHECK(read.value().all.count == 3);
  CHECK(read.value().all.waited_s == doctest::Approx(500e-6));
  REQUIRE(read.value().tensors.size() == 2);
  CHECK(read.value().tensors[0].name == "set");
  CHECK(read.value().tensors[0].count == 1);
  CHECK(read.value().tensors[0].worked_s == 0);
  CHECK(read.value().ranks.front().rank == 2);
}

TEST_CASE("timeline: files as Horovod and other tools leave them") {
  std::vector<std::string> lines = {"[", tensor(1, "t")};
  append(lines, allreduce(1, 0, 10));
  const std::size_t whole = lines.size();
  lines.push_back(R"({"name":"NEGOTIATE_ALLRED)");  // the job was killed
  const auto cut = summary_of(lines);
  REQUIRE(cut.ok());
  CHECK(cut.value().is_cut);
  CHECK(cut.value().all.count == 1);
  CHECK(timeline_tables("t", cut.value(), 9).find("(the file ends early)") != std::string::npos);

  lines.resize(whole);
  std::string one_line;
  for (std::size_t i = 1; i < whole; ++i) {
    one_line += lines[i];
  }
  one_line.pop_back();
  std::string spaced;  // as programs lay it out for people
  for (const char c : one_line) {
    spaced += std::string(c == '{' || c == ',' || c == ':' ? "\n  " : "") + c;
  }
  for (const std::string& text :
       {"[" + one_line + "]", "[" + one_line + ",]", R"({"traceEvents":[)" + one_line + "]}",
        R"({"schemaVersion":1,"traceEvents":[)" + one_line + R"(],"metadata":{"a":[]}})", "[" + spaced + "]"}) {
    const auto read = summary_of({text});
    REQUIRE(read.ok());
    CHECK(read.value().all.count == 1);
  }
  for (const std::vector<std::string>& begin :
       std::vector<std::vector<std::string>>{{"", "["}, {R"({"traceEvents": [)"}, {"{", R"("traceEvents": [)"}}) {
    std::vector<std::string> spread = begin;
    spread.insert(spread.end(), lines.begin() + 1, lines.end());
    spread.back().pop_back();
    spread.push_back(begin.size() == 2 && begin[0].empty() ? "]" : "]}");
    const auto read = summary_of(spread);
    CAPTURE(begin[0]);
    REQUIRE(read.ok());
    CHECK(read.value().all.count == 1);
  }
  // The last event and the bracket in one line; ends without names; events of other programs between them.
  std::vector<std::string> odd = {"[",
                                  tensor(1, "t"),
                                  event("B", "ALLGATHER", 1, 5),
                                  R"({"ph":"C","name":"memory","pid":7,"ts":6,"args":{"used":1}},)",
                                  "",
                                  R"({"ph":"E","pid":1,"tid":0,"ts":9}])"};
  const auto read = summary_of(odd);
  REQUIRE(read.ok());
  CHECK(read.value().all.count == 1);
  CHECK(read.value().all.worked_s == doctest::Approx(4e-6));
  CHECK(read.value().all.waited_s == 0);
}

TEST_CASE("timeline: several ranks that are late together are all named") {
  std::vector<std::string> lines = {"[", tensor(1, "t")};
  for (int i = 0; i < 3; ++i) {
    const double at = 1000.0 * i;
    lines.push_back(event("B", "NEGOTIATE_ALLREDUCE", 1, at));
    for (const auto& [rank, late] : std::vector<std::pair<const char*, double>>{{"0", 0}, {"2", 590}, {"3", 600}}) {
      lines.push_back(event("X", rank, 1, at + late));
    }
    append(lines, {event("X", "1", 1, at + 5), event("E", "NEGOTIATE_ALLREDUCE", 1, at + 600),
                   event("B", "ALLREDUCE", 1, at + 600), event("E", "ALLREDUCE", 1, at + 700)});
  }
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  REQUIRE(read.value().ranks.size() == 4);
  CHECK(read.value().ranks[0].rank == 3);
  CHECK(read.value().ranks[0].waited_for_s == doctest::Approx(30e-6));
  CHECK(read.value().ranks[0].behind_s == doctest::Approx(1800e-6));
  CHECK(read.value().ranks[1].rank == 2);
  CHECK(read.value().ranks[1].behind_s == doctest::Approx(1770e-6));
  const std::string text = timeline_tables("t", read.value(), 9);
  CAPTURE(text);
  CHECK(text.find("for 1.8 ms, 67 % of the time; most of all it was ranks 2, 3, each for up to 1.8 ms.\n") !=
        std::string::npos);
}

TEST_CASE("timeline: a rank that is late because it waits itself is not the one to name") {
  // Rank 2 comes late to its set with rank 1, and so rank 1 comes late to the operation that rank 0 waits in.
  std::vector<std::string> lines = {"[", tensor(1, "of all"), tensor(2, "t of process set 1")};
  append(lines,
         {event("B", "NEGOTIATE_ALLREDUCE", 1, 0), event("X", "0", 1, 0), event("B", "NEGOTIATE_ALLREDUCE", 2, 10),
          event("X", "1", 2, 10), event("X", "2", 2, 500), event("E", "NEGOTIATE_ALLREDUCE", 2, 500),
          event("X", "2", 1, 510), event("X", "1", 1, 600), event("E", "NEGOTIATE_ALLREDUCE", 1, 600),
          event("B", "ALLREDUCE", 1, 600), event("E", "ALLREDUCE", 1, 700)});
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  REQUIRE(read.value().ranks.size() == 3);
  CHECK(read.value().ranks[0].rank == 2);
  CHECK(read.value().ranks[0].behind_s == doctest::Approx(510e-6));
  CHECK(read.value().ranks[1].rank == 1);
  CHECK(read.value().ranks[1].behind_s == doctest::Approx(110e-6));
  CHECK(timeline_tables("t", read.value(), 9).find("most of all it was rank 2, for 510 us.\n") != std::string::npos);
}

TEST_CASE("timeline: no rank is named where all are behind in turn") {
  std::vector<std::string> lines = {"[", tensor(1, "t")};
  append(lines, allreduce(1, 0, 100));
  append(lines, {event("B", "NEGOTIATE_ALLREDUCE", 1, 1000), event("X", "1", 1, 1000), event("X", "0", 1, 1090),
                 event("E", "NEGOTIATE_ALLREDUCE", 1, 1090)});
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  CHECK(timeline_tables("t", read.value(), 9).find("; no rank was behind much longer than others.\n") !=
        std::string::npos);
}

TEST_CASE("timeline: what had not ended when the file did is told, with the ranks that had not asked") {
  std::vector<std::string> lines = {"[", tensor(1, "t"), tensor(2, "u of process set 4"), tensor(3, "v")};
  append(lines, allreduce(1, 0, 10));
  append(lines, allreduce(2, 0, 10));
  append(lines, {event("B", "NEGOTIATE_ALLREDUCE", 1, 1000), event("X", "1", 1, 1000),
                 event("B", "NEGOTIATE_ALLREDUCE", 2, 1500), event("X", "0", 2, 1500), event("X", "1", 2, 1600),
                 event("B", "ALLGATHER", 3, 1700), event("B", "QUEUE", 3, 1700),
                 event("i", "TIMELINE_END", 0, 5000, R"(,"s":"g")")});
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  const TimelineSummary& summary = read.value();
  CHECK(summary.all.count == 2);
  CHECK(summary.seconds == doctest::Approx(5000e-6));
  REQUIRE(summary.unfinished.size() == 3);
  CHECK(summary.unfinished[0].name == "t");
  CHECK(summary.unfinished[0].operation == "allreduce");
  CHECK(summary.unfinished[0].seconds == doctest::Approx(4000e-6));
  CHECK(summary.unfinished[0].missing == std::vector<int>{0});
  CHECK(summary.unfinished[1].missing.empty());  // both ranks of that set have asked
  CHECK(summary.unfinished[1].is_waiting);
  CHECK_FALSE(summary.unfinished[2].is_waiting);
  CHECK(summary.all.waited_s == doctest::Approx(4010e-6));
  CHECK(summary.ranks[0].rank == 0);
  CHECK(summary.ranks[0].behind_s == doctest::Approx(4000e-6));
  const std::string text = timeline_tables("t", summary, 9);
  CAPTURE(text);
  CHECK(text.find("When the file ends, 3 operations have not ended:\n") != std::string::npos);
  CHECK(text.find("waits for rank 0\n") != std::string::npos);
  CHECK(text.find("waits for a rank\n") != std::string::npos);
  CHECK(text.find("is at work\n") != std::string::npos);
}

TEST_CASE("timeline: ranks that have joined wait for no operation, and none waits for them") {
  std::vector<std::string> lines = {"[", tensor(1, "t"), tensor(2, "join")};
  append(lines, allreduce(1, 0, 10));
  append(lines,
         {event("B", "NEGOTIATE_JOIN", 2, 200), event("X", "0", 2, 200), event("B", "NEGOTIATE_ALLREDUCE", 1, 900),
          event("X", "1", 1, 900), event("i", "TIMELINE_END", 0, 1000)});
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  CHECK(read.value().all.waited_s == doctest::Approx(110e-6));
  CHECK(read.value().ranks[0].behind_s == doctest::Approx(10e-6));
  REQUIRE(read.value().operations.size() == 2);
  CHECK(read.value().operations[0].name == "join");
  CHECK(read.value().operations[0].waited_s == doctest::Approx(800e-6));
  REQUIRE(read.value().unfinished.size() == 2);
  CHECK(read.value().unfinished[0].missing == std::vector<int>{1});  // has not joined
  CHECK(read.value().unfinished[1].missing.empty());
}

TEST_CASE("timeline: one without operations is told as such, and so is what was left out") {
  const auto none = summary_of({"[", R"({"name":"start_time","ph":"M","pid":0,"args":{}})", "]"});
  REQUIRE(none.ok());
  CHECK(none.value().seconds == 0);
  CHECK(timeline_tables("t", none.value(), 9) == "t: no operation; it ended before the first one\n");

  std::vector<std::string> lines = {"[", tensor(1, std::string(40, 'a') + std::string(200, 'b'))};
  append(lines, allreduce(1, 0, 10, "[]"));
  lines.back() = event("E", "ALLREDUCE", 1, 110);  // without its shape
  lines.push_back(event("i", "DROPPED", 0, 120, R"(,"args":{"records":17})"));
  const auto read = summary_of(lines);
  REQUIRE(read.ok());
  CHECK(read.value().dropped == 17);
  const std::string text = timeline_tables("t", read.value(), 9);
  CAPTURE(text);
  CHECK(text.find("Parts are missing: rank 0 had to leave out 17 records") != std::string::npos);
  CHECK(text.find("allreduce          1        -   10.0 us") != std::string::npos);
  CHECK(text.find(std::string(30, 'a') + "..." + std::string(30, 'b') + " ") != std::string::npos);
}

TEST_CASE("timeline: what is none is an error that names the line") {
  CHECK(summary_of({}).error().message() == "it has no event of a timeline");
  CHECK(summary_of({"[", "]"}).error().message() == "it has no event of a timeline");
  CHECK(summary_of({"hello", "world"}).error().message() == "line 1 is not an event of a timeline");
  CHECK(summary_of({"[", event("B", "ALLREDUCE", 1, 5), "???", event("E", "ALLREDUCE", 1, 6)}).error().message() ==
        "line 3 is not an event of a timeline");
  CHECK(summary_of({"[", "[]", "]"}).error().message() == "line 2 is not an event of a timeline");
  CHECK(summary_of({"[]", "[]"}).error().message() == "line 2 is not an event of a timeline");
  CHECK(summary_of_text(std::string(200'000, '\0')).error().message() == "line 1 is not an event of a timeline");
  // Other programs' traces have no operations.
  CHECK(summary_of({"[", R"({"ph":"M","name":"process_name","pid":7,"args":{"name":"python"}},)",
                    R"({"ph":"X","name":"aten::add","pid":7,"tid":7,"ts":5.5,"dur":7}])"})
            .error()
            .message() == "it has no event of a timeline");
  CHECK(summary_of({"[", "17,"}).error().message() == "line 2 is not an event of a timeline");
  CHECK(summary_of({R"({"ph":17,"ts":"soon","pid":[],"name":{}})"}).error().message() ==
        "it has no event of a timeline");
  // Ends of what has not begun, as where a timeline is switched on in mid-operation, and hostile numbers.
  const auto odd =
      summary_of({"[", event("E", "ALLREDUCE", 1, 5), tensor(1, "t"), event("X", "-3", 1, 6),
                  event("X", "99999999999999999999", 1, 7), event("B", "ALLREDUCE", 1, 8),
                  event("E", "", 1, 9, R"(,"args":{"dtype":"float32","shape":"[99999999999,99999999999]"})")});
  REQUIRE(odd.ok());
  CHECK(odd.value().all.count == 1);
  CHECK(odd.value().all.bytes == 0);
  CHECK(odd.value().ranks.empty());
}

}  // namespace hvd::launch::timeline_test
