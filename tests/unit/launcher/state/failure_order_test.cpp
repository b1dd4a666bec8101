// launcher/run: which rank is the cause of a job's end, as scenarios of events in the order in which they arrive.
#include <signal.h>

#include <chrono>
#include <variant>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/logs/failure_signs.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/summary.h"
#include "launcher/state/job_state.h"

namespace hvd::launch::failure_order_test {

using Kind = hvd::FailureNews::Kind;
using Sign = FailureSigns::Sign;

namespace {

constexpr ExitStatus kGood{};
constexpr ExitStatus kOne{ExitStatus::Kind::kExited, 1};
constexpr ExitStatus kThree{ExitStatus::Kind::kExited, 3};
constexpr ExitStatus kTerminated{ExitStatus::Kind::kSignalled, SIGTERM};
constexpr ExitStatus kKilled{ExitStatus::Kind::kSignalled, SIGKILL};
constexpr ExitStatus kSegfault{ExitStatus::Kind::kSignalled, SIGSEGV};

// Four ranks on two hosts that run and have joined; `now` is in seconds.
struct Job {
  explicit Job(int restart_limit = 0) : state(placement, {}, restart_limit, std::chrono::seconds(10)) {
    on(NodeReady{0});
    on(NodeReady{1});
    for (int rank = 0; rank < 4; ++rank) {
      on(RankStarted{rank, 100 + rank});
      on(RankJoined{rank});
    }
  }

  std::string on(const JobEvent& event) {
    static constexpr const char* kNames[] = {"start",  "restart", "stop",        "tell",      "report",
                                             "finish", "failing", "await-cause", "await-end", "end-rank"};
    std::string names;
    actions = state.on(event);
    for (const JobAction& action : actions) {
      names += std::string(names.empty() ? "" : " ") + kNames[action.index()];
    }
    return names;
  }
  [[nodiscard]] TimePoint at() const { return TimePoint() + std::chrono::milliseconds(static_cast<int>(now * 1000)); }
  std::string ends(int rank, const ExitStatus& status) { return on(RankExited{rank, status, {}, at()}); }
  std::string raises(int rank, const std::string& what = "ValueError: no") {
    return on(RankFailing{rank, {Kind::kEnds, -1, 1, what}, at()});
  }
  std::string follows(int rank) {
    return on(RankFailing{rank, {Kind::kFollows, -1, 1, "HorovodInternalError: by another"}, at()});
  }
  std::string notices(int rank) { return on(RankFailing{rank, {Kind::kNoticed, -1, 1, "ValueError: no"}, at()}); }
  std::string is_over(int rank, int by) { return on(RankFailing{rank, {Kind::kOver, by, 0, "shut down"}, at()}); }
  std::string prints_traceback(int rank) { return on(RankComplained{rank, false, at()}); }
  std::string prints_loss(int rank) { return on(RankComplained{rank, true, at()}); }
  [[nodiscard]] int cause() const { return state.cause() ? state.cause()->rank : -1; }

  Placement placement = place(parse_host_list("a:2,b:2").value(), 4).value();
  JobState state;
  std::vector<JobAction> actions;
  double now = 1000;
};

}  // namespace

TEST_CASE("a rank that has raised is named at once, the others are stopped, and its own code is the job's") {
  Job job;
  CHECK(job.raises(2, "ValueError: no, train.py:12 in step") == "failing stop tell");
  CHECK(std::get<StopNodes>(job.actions[1]).spared == std::vector<int>{2});
  CHECK(describe_failing({*job.state.cause(), job.state.running_besides(2)}, job.placement) ==
        std::vector<std::string>{"hvdrun: rank 2 on b (pid 102) failed: ValueError: no, train.py:12 in step",
                                 "hvdrun: stopping the other 3 ranks"});
  // The others end sooner: stopped, or by themselves.
  CHECK(job.ends(0, kOne).empty());
  CHECK(job.ends(1, kTerminated).empty());
  CHECK(job.ends(3, kTerminated).empty());
  CHECK(job.on(NodeDone{0}).empty());
  job.now += 1.5;
  CHECK(job.ends(2, kThree) == "report");
  CHECK(job.cause() == 2);
  CHECK(job.state.exit_code() == 3);
  CHECK(job.state.cause()->lines == std::vector<std::string>{"rank 2 on b (pid 102) exited with code 3"});
  CHECK(job.on(NodeDone{1}) == "finish");
  // Its session closes when its agent has left.
  CHECK(job.on(NodeLost{1, Error(Code::kLostPeer, "closed")}).empty());
  CHECK_FALSE(job.state.has_lost_nodes());
}

TEST_CASE("an agent that ends before the job has begun ends the job, as a host that is not reached does") {
  const Placement placement = place(parse_host_list("a:1,b:1").value(), 2).value();
  for (const bool is_last : {false, true}) {
    JobState state(placement);
    static_cast<void>(is_last ? state.on(NodeReady{0}) : state.on(NodeDone{1}));
    CHECK_FALSE(state.cause());
    static_cast<void>(is_last ? state.on(NodeDone{1}) : state.on(NodeReady{0}));
    REQUIRE(state.cause());
    CHECK(state.cause()->lines.front().find("b: its agent has ended before the job began") != std::string::npos);
    CHECK(state.phase() != JobPhase::kOpening);
  }
  JobState ready(placement);
  static_cast<void>(ready.on(NodeReady{1}));
  static_cast<void>(ready.on(NodeDone{1}));
  static_cast<void>(ready.on(NodeReady{0}));
  REQUIRE(ready.cause());
  CHECK(ready.cause()->lines.front().find("b: its agent has ended") != std::string::npos);
}

TEST_CASE("a rank that does not end after its exception is killed in the end, and has the code of an exception") {
  Job job;
  CHECK(job.raises(2) == "failing stop tell");
  CHECK(job.ends(2, kKilled) == "report");
  CHECK(job.state.exit_code() == 1);
  CHECK(job.state.cause()->lines.front() ==
        "rank 2 on b (pid 102) failed: ValueError: no; it did not end within the time of grace, and was killed");
}

TEST_CASE("a rank that has raised and is never heard of again is reported all the same, once") {
  Job lost;
  CHECK(lost.raises(2) == "failing stop tell");
  CHECK(lost.on(NodeDone{0}).empty());
  CHECK(lost.on(NodeLost{1, Error(Code::kLostPeer, "closed")}) == "report finish");
  CHECK(lost.state.exit_code() == 1);
  Job late;
  CHECK(late.raises(2) == "failing stop tell");
  CHECK(late.on(StopTimedOut{}) == "report finish");
}

TEST_CASE("a rank that ends in order after it has told of its end has failed all the same") {
  Job job;
  CHECK(job.raises(2) == "failing stop tell");
  CHECK(job.ends(2, kGood) == "report");
  CHECK(job.state.exit_code() == 1);
}

TEST_CASE("Ctrl-C reaches also the rank that is waited for, and a second one kills") {
  Job job;
  CHECK(job.raises(2) == "failing stop tell");
  CHECK(job.on(Interrupted{SIGINT}) == "stop");
  CHECK(std::get<StopNodes>(job.actions.back()).spared.empty());
  CHECK(job.on(Interrupted{SIGINT}) == "stop");
  CHECK(std::get<StopNodes>(job.actions.back()).signo == SIGKILL);
}

TEST_CASE("of two ranks that fail within a millisecond the one whose news came first is named") {
  Job job;
  CHECK(job.raises(3) == "failing stop tell");
  CHECK(job.raises(0).empty());
  CHECK(job.ends(0, kOne).empty());
  CHECK(job.cause() == 3);
}

TEST_CASE("ranks that fail because of another one are no cause, though they end first: sys.exit with exit functions") {
  Job job;
  // Rank 2 has left the job and is busy in its exit functions.
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.follows(0) == "await-cause");
  CHECK(job.ends(0, kOne).empty());
  CHECK(job.is_over(1, 2).empty());
  CHECK(job.ends(1, kOne).empty());  // it has caught the exception, and ends by sys.exit
  CHECK(job.is_over(3, 2).empty());
  CHECK(job.follows(3).empty());
  job.now += 1.5;
  CHECK(job.ends(2, kThree) == "report tell stop");
  CHECK(job.cause() == 2);
  CHECK(job.state.exit_code() == 3);
  CHECK(job.ends(3, kOne).empty());
  CHECK(job.on(NodeDone{0}).empty());
  CHECK(job.on(NodeDone{1}) == "finish");
  CHECK(describe_end({job.state, std::chrono::seconds(2)}, job.placement) ==
        "hvdrun: job failed after 2.0 s: rank 2 on b (pid 102) exited with code 3; 2 other ranks failed because of it, "
        "1 was stopped; exit code 3");
}

TEST_CASE("os._exit, a segfault in a thread and a kill are the cause, whether the others or the end come first") {
  for (const ExitStatus& status : {kThree, kSegfault, kKilled}) {
    Job end_first;
    CHECK(end_first.ends(2, status) == "report tell stop");
    CHECK(end_first.state.exit_code() == status.shell_code());
    Job others_first;
    CHECK(others_first.follows(1) == "await-cause");
    CHECK(others_first.ends(2, status) == "report tell stop");
    CHECK(others_first.cause() == 2);
    CHECK(others_first.state.exit_code() == status.shell_code());
  }
}

TEST_CASE("when a rank leaves in order though others need it, the first of those is named, and the rank as well") {
  Job job;
  CHECK(job.ends(2, kGood).empty());
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.follows(0) == "failing stop tell");
  CHECK(job.state.cause()->lines.back() == "rank 2 on b had left the job before, and exited with code 0");
  CHECK(job.ends(0, kOne) == "report");
  CHECK(job.state.exit_code() == 1);
  // Rank 2 has not failed as well.
  CHECK(describe_end({job.state, std::chrono::seconds(2)}, job.placement) ==
        "hvdrun: job failed after 2.0 s: rank 0 on a (pid 100) exited with code 1; exit code 1");
}

TEST_CASE("when nobody but those who follow fails, the first of them is named in the end") {
  Job job;
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.ends(0, kOne) == "await-cause");
  CHECK(job.on(CauseDue{}) == "report tell stop");
  CHECK(job.cause() == 0);
  CHECK(job.state.cause()->lines.back() == "rank 2 on b, which it names as the cause, has not failed");
}

TEST_CASE("a rank that left because of its own failure is named, though it goes on for long") {
  Job job;
  CHECK(job.notices(2).empty());
  for (const int rank : {0, 1, 3}) {
    CHECK(job.is_over(rank, 2).empty());
  }
  CHECK(job.follows(0) == "failing stop tell");
  CHECK(job.cause() == 2);
  CHECK(job.state.cause()->lines == std::vector<std::string>{"rank 2 on b (pid 102) failed: ValueError: no"});
  CHECK(std::get<StopNodes>(job.actions[1]).spared == std::vector<int>{2});
  CHECK(job.ends(2, kThree) == "report");
  CHECK(job.state.exit_code() == 3);
}

TEST_CASE("a failure that a rank lived with long before it left, or before it joined, is not why the others fail") {
  for (const bool joins : {false, true}) {
    CAPTURE(joins);
    Job job;
    CHECK(job.notices(2).empty());
    job.now += joins ? 0 : 3600;
    if (joins) {
      job.on(RankJoined{2});
    }
    CHECK(job.is_over(0, 2).empty());
    CHECK(job.follows(0) == "await-cause");
    CHECK(job.on(CauseDue{}) == "failing stop tell");
    CHECK(job.cause() == 0);
  }
}

TEST_CASE("a follower in an elastic job that may restart nobody more names the rank that was started again") {
  Job job(1);
  CHECK(job.raises(2) == "await-end");
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.ends(2, kThree) == "restart");
  CHECK(job.on(RankStarted{2, 202}).empty());
  CHECK(job.ends(0, kOne) == "await-cause");
  CHECK(job.on(CauseDue{}) == "report tell stop");
  CHECK(job.cause() == 0);
  CHECK(job.state.cause()->lines.back() == "rank 2 on b (pid 102) exited with code 3 before, and was started again");
}

TEST_CASE("a rank that others follow follows nobody by words of a loss that it has printed and lived with") {
  for (const double since : {0.0, 3600.0}) {
    CAPTURE(since);
    Job job;
    job.prints_traceback(2);
    job.prints_loss(2);
    job.now += since;
    for (const int rank : {0, 1, 3}) {
      CHECK(job.is_over(rank, 2).empty());
    }
    CHECK(job.follows(0) == "await-cause");
    CHECK(job.ends(2, kThree) == "report tell stop");
    CHECK(job.cause() == 2);
    CHECK(job.state.exit_code() == 3);
  }
}

TEST_CASE("words of a loss an hour ago do not make a rank that still runs a follower") {
  Job job;
  job.prints_traceback(2);
  job.prints_loss(2);
  job.now += 3600;
  CHECK(job.is_over(0, -1).empty());
  CHECK(job.follows(0) == "await-cause");
  CHECK(job.ends(2, kThree) == "report tell stop");
  CHECK(job.cause() == 2);
}

TEST_CASE("a rank that ends without a report is no cause before one that another rank has named earlier") {
  Job job;
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.ends(1, kOne) == "await-cause");
  CHECK(job.ends(2, kThree) == "report tell stop");
  CHECK(job.cause() == 2);

  Job in_order;  // the one that was named has left as it should
  CHECK(in_order.is_over(0, 2).empty());
  CHECK(in_order.ends(1, kOne) == "await-cause");
  CHECK(in_order.ends(2, kGood) == "report tell stop");
  CHECK(in_order.cause() == 1);
}

TEST_CASE("ranks that each name the other wait for nobody") {
  Job job;
  CHECK(job.is_over(1, 0).empty());
  CHECK(job.is_over(2, 3).empty());
  CHECK(job.is_over(3, 2).empty());
  CHECK(job.follows(1) == "await-cause");
  CHECK(job.is_over(0, 1) == "failing stop tell");
  CHECK(job.cause() == 1);
}

TEST_CASE("a node that is lost is the cause also while those who lost its ranks have failed already") {
  Job job;
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.follows(0) == "await-cause");
  CHECK(job.on(NodeLost{1, Error(Code::kLostPeer, "closed")}) == "report tell stop");
  CHECK(job.state.cause()->lines.front().find("node b was lost") == 0);
}

TEST_CASE("plain scripts: whose traceback began first is the cause, though another one ends first") {
  Job job;
  CHECK(job.prints_traceback(2).empty());
  job.now += 0.1;
  CHECK(job.prints_traceback(0).empty());
  CHECK(job.ends(0, kOne) == "await-cause");
  job.now += 1.4;
  CHECK(job.ends(2, kOne) == "report tell stop");
  CHECK(job.cause() == 2);
}

TEST_CASE("a traceback alone fails no job, and one of an exception that was caught orders nothing") {
  Job job;
  CHECK(job.prints_traceback(2).empty());
  job.now += 11;  // longer than a rank that is ending is waited for
  CHECK(job.ends(0, kSegfault) == "report tell stop");
  CHECK(job.cause() == 0);

  Job recent;
  CHECK(recent.prints_traceback(2).empty());
  recent.now += 5;
  CHECK(recent.ends(0, kSegfault) == "await-cause");
  CHECK(recent.prints_traceback(2) == "report tell stop");  // this one is why it ends, and it came later
  CHECK(recent.cause() == 0);

  Job innocent;
  CHECK(innocent.prints_traceback(2).empty());
  innocent.now += 5;
  CHECK(innocent.ends(0, kSegfault) == "await-cause");
  CHECK(innocent.on(CauseDue{}) == "report tell stop");
  CHECK(innocent.cause() == 0);
}

TEST_CASE("what a rank tells itself waits for nobody's traceback") {
  Job job;
  CHECK(job.prints_traceback(1).empty());
  CHECK(job.raises(2) == "failing stop tell");
}

TEST_CASE("ranks of Gloo that have lost a peer are no cause, though they end first") {
  Job job;
  for (const int rank : {0, 1, 3}) {
    job.prints_traceback(rank);
    job.prints_loss(rank);
  }
  CHECK(job.ends(0, kOne) == "await-cause");
  CHECK(job.ends(1, kOne).empty());
  CHECK(job.ends(2, kThree) == "report tell stop");  // sys.exit(3), without a word
  CHECK(job.cause() == 2);
  CHECK(job.state.exit_code() == 3);

  Job all;  // the network is gone, and no rank is to blame
  for (const int rank : {1, 0, 2, 3}) {
    all.prints_traceback(rank);
    all.prints_loss(rank);
  }
  CHECK(all.ends(3, kOne) == "report tell stop");
}

TEST_CASE(
    "in an elastic job a rank that has raised is started anew when it has ended, or killed when it does not end") {
  Job job(2);
  CHECK(job.raises(1) == "await-end");
  CHECK(job.ends(1, kOne) == "restart");
  CHECK(job.on(RankOverdue{1, 101}).empty());
  CHECK(job.on(RankStarted{1, 201}).empty());
  CHECK(job.on(RankOverdue{1, 101}).empty());
  CHECK(job.on(RankJoined{1}).empty());
  CHECK(job.raises(1) == "await-end");
  CHECK(job.on(RankOverdue{1, 201}) == "end-rank");
  CHECK(job.ends(1, kKilled) == "restart");
  CHECK(job.on(RankStarted{1, 301}).empty());
  CHECK(job.on(RankJoined{1}).empty());
  CHECK(job.raises(1) == "failing stop tell");
  CHECK(job.ends(1, kOne) == "report");
  CHECK(job.state.cause()->lines.front() ==
        "rank 1 on a (pid 301) exited with code 1, after 2 restarts of ranks, the most that are allowed");
}

TEST_CASE("a rank that has met the others anew is a follower no more") {
  Job job;
  CHECK(job.is_over(0, 2).empty());
  CHECK(job.on(RankJoined{0}).empty());
  CHECK(job.ends(0, kThree) == "report tell stop");
}

TEST_CASE("words of a rank that came behind its end change nothing") {
  Job job;
  CHECK(job.ends(2, kThree) == "report tell stop");
  CHECK(job.raises(2).empty());
  CHECK(job.follows(1).empty());
  CHECK(job.on(CauseDue{}).empty());
  CHECK(job.cause() == 2);
}

TEST_CASE("a report has 25 lines at most, however long the traceback is") {
  Job job;
  job.raises(2);
  std::size_t lines = describe_failing({*job.state.cause(), 3}, job.placement).size();
  job.ends(2, kSegfault);
  Failure failure{*job.state.cause(), {}, kSegfault, {"", "in /w/core"}, "/kept/rank.2", true};
  failure.last_errors = {"Traceback (most recent call last):", "  File \"t.py\", line 1, in f"};
  failure.last_errors.insert(failure.last_errors.end(), 50, "    frame");
  failure.last_errors.emplace_back("ValueError: no");
  const auto said = describe_failure(failure, job.placement);
  lines += said.size() + 1;  // and the last line
  CHECK(lines <= 25);
  CHECK(said[4] == "hvdrun:   Traceback (most recent call last):");
  CHECK(said[7] == "hvdrun:     (40 lines left out)");
  CHECK(said[said.size() - 2] == "hvdrun:   ValueError: no");
}

TEST_CASE("the beginning of a failure is found on standard error, once for each") {
  FailureSigns signs;
  CHECK(signs.on_line("epoch 1\n") == Sign::kNone);
  CHECK(signs.on_line("Broken pipe, says the user\n") == Sign::kNone);
  CHECK(signs.on_line("50%|###Traceback (most recent call last):\r\n") == Sign::kBegins);
  CHECK(signs.on_line("  File \"a.py\", line 1, in f\n") == Sign::kNone);
  CHECK(signs.on_line("KeyError: 'x'\n") == Sign::kNone);
  CHECK(signs.on_line("\n") == Sign::kNone);
  CHECK(signs.on_line("During handling of the above exception, another exception occurred:\n") == Sign::kNone);
  CHECK(signs.on_line("\n") == Sign::kNone);
  CHECK(signs.on_line("Traceback (most recent call last):\n") == Sign::kNone);
  CHECK(signs.on_line("RuntimeError: [gloo/pair.cc:1] Connection closed by peer [127.0.0.1]:1\n") == Sign::kLost);
  CHECK(signs.on_line("Error in atexit._run_exitfuncs:\n") == Sign::kNone);
  CHECK(signs.on_line("Traceback (most recent call last):\n") == Sign::kNone);
  CHECK(signs.on_line("ValueError: what the exit function raised\n") == Sign::kNone);
  CHECK(signs.on_line("Traceback (most recent call last):\n") == Sign::kBegins);
  CHECK(signs.on_line("[rank1]: During handling of the above exception, another exception occurred:") == Sign::kNone);
  CHECK(signs.on_line("[rank1]: Traceback (most recent call last):") == Sign::kNone);
  CHECK(signs.on_line("terminate called after throwing an instance of 'std::bad_alloc'") == Sign::kBegins);
  CHECK(signs.on_line("Fatal Python error: Segmentation fault") == Sign::kBegins);
}

TEST_CASE("a rank that is failing is an event of its own, before the failure") {
  Job job;
  job.raises(2);
  JobSpec spec;
  JsonReporter events(spec, job.placement, [] { return std::chrono::system_clock::time_point(); });
  CHECK(events.on(news::Failing{*job.state.cause()}) ==
        Lines{R"({"event":"rank_failing","time":"1970-01-01T00:00:00.000Z","rank":2,"node":1,"host":"b",)"
              R"("message":"rank 2 on b (pid 102) failed: ValueError: no"})"});
}

}  // namespace hvd::launch::failure_order_test
