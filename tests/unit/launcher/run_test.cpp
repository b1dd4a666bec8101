// launcher/run and launcher/report: the job as scenarios of events, with neither processes nor sockets.
#include <errno.h>
#include <signal.h>

#include <variant>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/report/summary.h"
#include "launcher/run/exit_codes.h"
#include "launcher/run/job_state.h"
#include "launcher/run/start_plan.h"

using namespace hvd::launch;  // NOLINT(google-build-using-namespace)
using hvd::Code;
using hvd::Error;

namespace {

struct Job {
  Placement placement = place(parse_host_list("a:2,b:2").value(), 4).value();
  JobState state{placement};

  std::string on(const JobEvent& event) {
    std::string names;
    for (const JobAction& action : state.on(event)) {
      static constexpr const char* kNames[] = {"start", "stop", "tell", "report", "finish"};
      names += std::string(names.empty() ? "" : " ") + kNames[action.index()];
    }
    return names;
  }
  void run_all() {
    CHECK(on(NodeReady{0}).empty());
    CHECK(on(NodeReady{1}) == "start");
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(on(RankStarted{rank, 100 + rank}).empty());
    }
  }
};

constexpr ExitStatus kGood{};
constexpr ExitStatus kThree{ExitStatus::Kind::kExited, 3};
constexpr ExitStatus kTerminated{ExitStatus::Kind::kSignalled, SIGTERM};

}  // namespace

TEST_CASE("a job in which all goes well ends with 0") {
  Job job;
  job.run_all();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.on(RankExited{rank, kGood}).empty());
  }
  CHECK(job.on(NodeDone{1}).empty());
  CHECK(job.on(NodeDone{0}) == "finish");
  CHECK(job.state.exit_code() == 0);
  CHECK(describe_end(job.state, job.placement, std::chrono::milliseconds(1234)) ==
        "hvdrun: 4 ranks on 2 nodes succeeded in 1.2 s");
  CHECK(job.on(NodeLost{0, Error(Code::kLostPeer, "x")}).empty());
}

TEST_CASE("the first failure is the cause, whatever fails after it") {
  Job job;
  job.run_all();
  CHECK(job.on(RankExited{2, kThree}) == "report tell stop");
  CHECK(job.on(RankExited{0, kTerminated}).empty());
  CHECK(job.on(RankExited{1, {ExitStatus::Kind::kExited, 1}}).empty());
  CHECK(job.on(RankExited{3, kTerminated}).empty());
  CHECK(job.on(NodeDone{0}).empty());
  CHECK(job.on(NodeDone{1}) == "finish");
  CHECK(job.state.exit_code() == 3);
  CHECK(job.state.cause()->lines.front() == "rank 2 on b (pid 102) exited with code 3");
  CHECK(describe_end(job.state, job.placement, std::chrono::seconds(125)) ==
        "hvdrun: job failed after 2 min 5 s: rank 2 on b (pid 102) exited with code 3; 3 other ranks were stopped; "
        "exit code 3");
}

TEST_CASE("all unreachable hosts are named, and nothing is started") {
  Job job;
  CHECK(job.on(NodeLost{1, Error(Code::kUnreachable, "b: refused")}).empty());
  CHECK(job.on(NodeLost{0, Error(Code::kUnreachable, "a: unknown")}) == "report finish");
  CHECK(job.state.cause()->lines == std::vector<std::string>{"b: refused", "a: unknown"});
  CHECK(job.state.exit_code() == exit_code::kUnreachable);
  CHECK(describe_end(job.state, job.placement, {}).empty());
}

TEST_CASE("a host that answers does not save a job whose other host does not") {
  Job job;
  CHECK(job.on(NodeReady{0}).empty());
  CHECK(job.state.silent_hosts() == std::vector<std::string>{"b"});
  CHECK(job.on(StartTimedOut{}) == "report finish");
  CHECK(job.state.cause()->lines.front().find("b: no answer within --start-timeout") == 0);
}

TEST_CASE("a node lost while the job runs takes its ranks along and ends the job") {
  Job job;
  job.run_all();
  CHECK(job.on(NodeLost{1, Error(Code::kLostPeer, "closed")}) == "report tell stop");
  CHECK(job.state.cause()->lines.front() == "node b was lost, with ranks 2-3: closed");
  CHECK(job.on(NodeDone{0}) == "finish");
  CHECK(job.state.exit_code() == exit_code::kNodeLost);
}

TEST_CASE("the last node lost while stopping ends the job") {
  Job job;
  job.run_all();
  CHECK(job.on(RankExited{0, kThree}) == "report tell stop");
  CHECK(job.on(NodeDone{0}).empty());
  CHECK(job.on(NodeLost{1, Error(Code::kLostPeer, "closed")}) == "finish");
  CHECK(job.state.exit_code() == 3);
}

TEST_CASE("a missing program is 127, another start failure our own code") {
  Job missing;
  missing.run_all();
  CHECK(missing.on(RankStartFailed{0, Error(Code::kNotFound, "no such program: 'x'")}) == "report tell stop");
  CHECK(missing.state.exit_code() == 127);
  Job other;
  other.run_all();
  CHECK(other.on(RankStartFailed{0, Error(Code::kResource, "fork")}) == "report tell stop");
  CHECK(other.state.exit_code() == exit_code::kStartFailed);
}

TEST_CASE("one signal stops, two kill, three leave") {
  Job job;
  job.run_all();
  CHECK(job.on(Interrupted{SIGINT}) == "report tell stop");
  CHECK(job.on(Interrupted{SIGINT}) == "stop");
  CHECK(job.on(Interrupted{SIGINT}) == "finish");
  CHECK(job.state.exit_code() == 130);
}

TEST_CASE("a signal before the ranks start ends at once") {
  Job job;
  CHECK(job.on(NodeReady{0}).empty());
  CHECK(job.on(Interrupted{SIGTERM}) == "report finish");
  CHECK(job.state.exit_code() == 143);
}

TEST_CASE("a reader that has gone is the end of a filter, a full disk our own code") {
  Job pipe;
  pipe.run_all();
  CHECK(pipe.on(OutputFailed{Error::from_errno("write", EPIPE)}) == "report tell stop");
  CHECK(pipe.state.exit_code() == 141);
  Job disk;
  disk.run_all();
  CHECK(disk.on(OutputFailed{Error::from_errno("write", ENOSPC)}) == "report tell stop");
  CHECK(disk.state.exit_code() == exit_code::kOutputFailed);
}

TEST_CASE("files that cannot be written do not stop a job, but its code tells") {
  Job job;
  job.run_all();
  CHECK(job.on(FilesFailed{Error(Code::kResource, "full")}).empty());
  CHECK(job.on(NodeDone{0}).empty());
  CHECK(job.on(NodeDone{1}) == "finish");
  CHECK(job.state.exit_code() == exit_code::kOutputFailed);
  CHECK(describe_end(job.state, job.placement, {}).find("not all of their output could be kept") != std::string::npos);
}

TEST_CASE("a job that has run as long as it may is stopped, and that is the cause") {
  Job job;
  job.run_all();
  CHECK(job.on(TimedOut{}) == "report tell stop");
  CHECK(job.on(RankExited{1, kTerminated}).empty());
  CHECK(job.state.exit_code() == exit_code::kTimedOut);
}

TEST_CASE("a node that does not report its end in time is left") {
  Job job;
  job.run_all();
  CHECK(job.on(RankExited{0, kThree}) == "report tell stop");
  CHECK(job.on(StopTimedOut{}) == "finish");
  CHECK(job.state.phase() == JobPhase::kDone);
}

TEST_CASE("the failure block quotes the failing rank's last lines") {
  Cause cause{{"rank 1 on a (pid 7) exited with code 3"}, 3, 1};
  CHECK(describe_cause(cause, {"Traceback", "ValueError: x"}, 4) ==
        std::vector<std::string>{"hvdrun: rank 1 on a (pid 7) exited with code 3",
                                 "hvdrun: the last lines of its standard error:", "hvdrun:   Traceback",
                                 "hvdrun:   ValueError: x", "hvdrun: stopping the other 3 ranks"});
}

TEST_CASE("a Python traceback is quoted from its beginning, other errors by their last lines") {
  std::vector<std::string> lines(30, "noise");
  const auto count = [&lines] { return describe_cause(Cause{{"what"}, 1, 0}, lines, 1).size() - 2; };
  CHECK(count() == 20);
  lines[5] = "Traceback (most recent call last):";
  lines[25] = "Traceback (most recent call last):";
  CHECK(count() == 25);
}

TEST_CASE("nodes reach each other as the launcher reached them, and the local one by the launcher's address") {
  NodeView local{true, "", "", {}};
  NodeView remote{false, "10.0.0.2", "10.0.0.9", {}};
  CHECK(data_addresses({local}) == std::vector<std::string>{"127.0.0.1"});
  CHECK(data_addresses({local, remote}) == std::vector<std::string>{"10.0.0.9", "10.0.0.2"});
}

TEST_CASE("a remote node gets the user's variables, a local one has them") {
  Job job;
  JobSpec spec;
  spec.argv = {"x"};
  spec.environment = {"KEEP=1", "HOME=/h", "RANK=9", "OMP_NUM_THREADS=4"};
  spec.user_env = {{"X", "y"}};
  const NodeView local{true, "", "", {}};
  const NodeView remote{false, "10.0.0.2", "10.0.0.9", {}};
  const auto messages = make_start_messages(spec, job.placement, {local, remote}, "id", "t");
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].env.empty());
  CHECK(messages[1].env == EnvList{{"KEEP", "1"}, {"OMP_NUM_THREADS", "4"}});
  CHECK(messages[1].unset == std::vector<std::string>{"RANK"});
  CHECK(messages[1].last == EnvList{{"X", "y"}});
  CHECK(messages[1].ranks.size() == 2);
}
