// launcher/steps/file_job: which steps a job file's job takes, and where it cleans up, without a process.
#include "launcher/steps/file_job.h"

#include <signal.h>

#include <cerrno>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/job_step.h"
#include "tests/multi/thread_job.h"
#include "tests/support/silence.h"

namespace hvd::launch::file_job_test {

using namespace std::chrono_literals;

namespace {

// How a step ends; -1: without a failure, or with all nodes.
struct End {
  int code = 0;  // of rank 0
  int lost_node = -1;
  bool is_reached = true;    // false: no node is
  int unreached = -1;        // this node does not answer
  int later_unreached = -1;  // it does not when the ranks are started again
  int signo = 0;             // hvdrun gets this signal while the ranks run
  int late_signo = 0;        // it does when they have ended, and their engine has not
};

// Carries out steps that end as they are told, by the events that a runner would see. Steps for which nothing is told
// succeed.
struct Steps {
  Result<int> run(const JobStep& step) {
    const Placement& placement = step.placement;
    std::string hosts;
    for (const NodePlan& node : placement.nodes) {
      hosts += (hosts.empty() ? "" : ",") + node.host.name;
    }
    const End end = ends.empty() ? End() : ends.front();
    if (!ends.empty()) {
      ends.pop_front();
    }
    settings.push_back(step.job);
    has_tree.push_back(step.tree != nullptr);
    if (!end.is_reached) {
      take("nothing on " + hosts);
      return Error(Code::kLostPeer, "no node is there");
    }
    take((step.records == nullptr ? "cleaning" : step.name) + (" on " + hosts));
    check_programs_of(step);
    JobState state(placement);
    const auto reporter = step.report_by(std::make_unique<test::Silence>(), placement);
    for (const NodePlan& node : placement.nodes) {
      if (node.index == end.unreached) {
        state.on(NodeLost{node.index, Error(Code::kTimeout, node.host.name + ": no answer")});
      } else {
        state.on(NodeReady{node.index});
      }
    }
    if (end.unreached >= 0) {
      Failure failure;
      failure.cause = *state.cause();
      reporter->on(failure);
      reporter->on(news::Ended{state, 1s});
      return state.exit_code();
    }
    for (int rank = 0; rank < placement.size; ++rank) {
      state.on(RankStarted{rank, 100 + rank});
      reporter->on(news::RankStarted{rank, 100 + rank});
    }
    if (end.signo != 0) {
      state.on(Interrupted{end.signo});
      Failure failure;
      failure.cause = *state.cause();
      reporter->on(failure);
    }
    if (end.code != 0) {
      state.on(RankExited{0, ExitStatus{ExitStatus::Kind::kExited, end.code}});
    }
    if (end.lost_node >= 0) {
      const Error why(Code::kLostPeer, "it is gone");
      state.on(NodeLost{end.lost_node, why});
      reporter->on(news::NodeLost{end.lost_node, why});
      Failure failure;
      failure.cause = *state.cause();
      reporter->on(failure);
    }
    for (const NodePlan& node : placement.nodes) {
      if (!state.is_over(node.index)) {
        state.on(NodeDone{node.index});
      }
    }
    if (end.code != 0) {
      Failure failure;
      failure.cause = *state.cause();
      reporter->on(failure);
    }
    if (end.later_unreached >= 0) {
      Failure failure;
      failure.cause.unreached.hosts = {
          {placement.nodes[static_cast<std::size_t>(end.later_unreached)].host.name, "no answer"}};
      reporter->on(failure);
    }
    reporter->on(news::Ended{state, 1s});
    const bool is_cut =
        end.late_signo != 0 && step.on_late_signal && step.on_late_signal(end.late_signo, state.exit_code());
    return is_cut ? 128 + end.late_signo : state.exit_code();
  }

  // As a runner does once all agents have answered.
  static void check_programs_of(const JobStep& step) {
    std::vector<NodeView> views;
    for (const NodePlan& node : step.placement.nodes) {
      NodeView view;
      view.opened.node_address = "10.0.0." + std::to_string(node.index + 1);
      view.ready.socket_path = "/run/agent-" + std::to_string(node.index) + "/socket";
      views.push_back(view);
    }
    const std::vector<RankProgram> programs = step.programs({step.placement, step.placement, views});
    REQUIRE(programs.size() == static_cast<std::size_t>(step.placement.size));
    CHECK_FALSE(programs.front().argv.empty());
  }
  void take(const std::string& step) { taken += (taken.empty() ? "" : "; ") + step; }

  std::deque<End> ends{};
  std::string taken{};
  std::vector<JobSpec> settings{};  // of each step
  std::vector<bool> has_tree{};
};

class Refusing final : public FileJobObserver {
 public:
  Result<void> on_output(const std::string& /*directory*/, const JobRun& /*run*/) override { return {}; }
  Result<void> on_preparing() override { return {}; }
  void on_nodes(const JobLayout& /*layout*/, const std::vector<JobNodeFacts>& facts) override { nodes = facts.size(); }
  Result<void> on_ranks() override { return agreed; }
  void on_unreached(const Unreached& those) override {
    unreached = those.hosts;
    has_reached_one = those.has_reached_one;
  }
  void on_interrupted() override { is_interrupted = true; }
  void on_failed_rank() override { has_failed_rank = true; }
  void on_lost(const std::vector<std::string>& hosts) override { lost = hosts; }
  std::unique_ptr<HostSource> host_source(EventLoop& /*loop*/) override { return nullptr; }

  Result<void> agreed = Error(Code::kCancelled, "the user has stopped it");
  std::size_t nodes = 0;
  std::vector<UnreachedHost> unreached;
  bool has_reached_one = false;
  bool is_interrupted = false;
  bool has_failed_rank = false;
  std::vector<std::string> lost;
};

// `output` is below a folder in which `file` is a file. `state_root`: where the output is kept, in place of the
// directory that the file names.
Result<int> run(Steps& steps, FileJobObserver* observer = nullptr, JobSpec job = {}, const std::string& output = "",
                const std::string& state_root = "") {
  const test::ScratchDir folder;
  std::ofstream(folder.path() + "/file").close();
  auto loaded = parse_job_file(
      "properties: {nodeCount: 2, customToolkitSettings: {commandLine: python train.py}, "
      "jobPreparation: {commandLine: make data}, stdOutErrPathPrefix: " +
          (state_root.empty() ? folder.path() + output : "logs") + "}\n",
      "job.yaml", {});
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  JobFile file = std::move(loaded).value().job;
  auto layout = lay_out(file, parse_host_list("a,b").value(), 0);
  REQUIRE_MESSAGE(layout.ok(), layout.error().message());
  JobRunOptions options;
  options.id = "1d";
  options.uuid = "uuid";
  auto made = make_job_run(std::move(file), std::move(layout).value(), options);
  REQUIRE_MESSAGE(made.ok(), made.error().message());
  job.hosts = made.value().layout.nodes;
  job.size = made.value().layout.size();
  job.quiet = true;
  return run_file_job({job, std::move(made).value(), {}, state_root}, observer,
                      [&steps](const JobStep& step) { return steps.run(step); });
}

}  // namespace

TEST_CASE("a job file's job prepares its nodes, runs, and cleans up") {
  Steps steps;
  CHECK(run(steps).value() == 0);
  CHECK(steps.taken == "preparation on a,b; job on a; cleaning on a,b");
}

TEST_CASE("which hosts could not be reached is told, and why") {
  Steps steps;
  End end;
  end.unreached = 1;
  steps.ends.push_back(end);
  Refusing observer;
  CHECK(run(steps, &observer).value() == exit_code::kUnreachable);
  REQUIRE(observer.unreached.size() == 1);
  CHECK(observer.unreached.front().name == "b");
  CHECK(observer.unreached.front().why == "b: no answer");
  CHECK(observer.unreached.front().code == Code::kTimeout);
  CHECK(observer.has_reached_one);
}

TEST_CASE("a job that ends because hvdrun got a signal is told apart from one whose process has the same code") {
  Steps steps;
  End end;
  SUBCASE("the signal") {
    end.signo = SIGTERM;
  }
  SUBCASE("the code") {
    end.code = 128 + SIGTERM;
  }
  steps.ends.push_back(end);
  Refusing observer;
  CHECK(run(steps, &observer).value() == 128 + SIGTERM);
  CHECK(observer.is_interrupted == (end.signo != 0));
  CHECK(observer.has_failed_rank == (end.code != 0));
}

TEST_CASE("a host that was lost in or after the preparation is told too, unless a process of the job has begun") {
  Steps steps;
  End end;
  Refusing observer;
  SUBCASE("none has, and the host was lost while it was prepared") {
    steps.ends = {End{0, 0}};
    REQUIRE(run(steps, &observer).value() == exit_code::kNodeLost);
    REQUIRE(observer.unreached.size() == 1);
    CHECK(observer.unreached.front().name == "a");
    CHECK(observer.unreached.front().why == "it is gone");
    CHECK(observer.has_reached_one);
    return;
  }
  SUBCASE("none has") {
    end.unreached = 0;
  }
  SUBCASE("one has, and they were to be started again") {
    end.code = 1;
    end.later_unreached = 0;
  }
  steps.ends = {End(), end};
  observer.agreed = {};
  CHECK(run(steps, &observer).value() != 0);
  CHECK(observer.unreached.size() == (end.unreached == 0 ? 1U : 0U));
}

TEST_CASE("a signal that comes between the preparation and the processes ends the job") {
  End end;
  end.late_signo = SIGTERM;
  Refusing observer;
  observer.agreed = {};
  SUBCASE("no process is started") {
    Steps steps{{end}};
    CHECK(run(steps, &observer).value() == 128 + SIGTERM);
    CHECK(steps.taken == "preparation on a,b; cleaning on a,b");
    CHECK(observer.is_interrupted);
  }
  SUBCASE("a preparation that has failed keeps its code") {
    end.code = 3;
    Steps steps{{end}};
    CHECK(run(steps, &observer).value() == 3);
    CHECK_FALSE(observer.is_interrupted);
  }
  SUBCASE("one after the processes comes too late") {
    Steps steps{{{}, end}};
    CHECK(run(steps, &observer).value() == 0);
    CHECK_FALSE(observer.is_interrupted);
  }
}

TEST_CASE("where preparation fails no process is started, and its nodes are cleaned up") {
  Steps steps{{{3}}};
  CHECK(run(steps).value() == 3);
  CHECK(steps.taken == "preparation on a,b; cleaning on a,b");
}

TEST_CASE("the processes' exit code is the job's, whatever cleaning up comes to") {
  Steps steps{{{}, {7}, {9}}};
  CHECK(run(steps).value() == 7);
  CHECK(steps.taken == "preparation on a,b; job on a; cleaning on a,b");
}

TEST_CASE("a node that is lost is cleaned up last, since the others must not wait for it") {
  Steps steps{{{}, {0, 0}}};
  CHECK(run(steps).value() == exit_code::kNodeLost);
  CHECK(steps.taken == "preparation on a,b; job on a; cleaning on b; cleaning on a");
}

TEST_CASE("which hosts were lost is told, in whichever step that was") {
  Steps steps{{{}, {0, 0}}};
  SUBCASE("with the ranks") {}
  SUBCASE("in the preparation") {
    steps.ends = {End{0, 0}};
  }
  Refusing observer;
  observer.agreed = {};
  CHECK(run(steps, &observer).value() == exit_code::kNodeLost);
  CHECK(observer.lost == std::vector<std::string>{"a"});
}

TEST_CASE("where hvdrun's own folder cannot keep the output, the file is not blamed for it") {
  Steps steps;
  const auto failed = run(steps, nullptr, {}, "", "/dev/null/hvdrun");
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message().starts_with("cannot make the directory /dev/null/hvdrun/jobs/job/uuid: "));
  CHECK(failed.error().message().find("XDG_STATE_HOME") != std::string::npos);
  CHECK(steps.taken.empty());
}

TEST_CASE("where no node was reached nothing is cleaned up") {
  Steps steps{{{0, -1, false}}};
  CHECK(run(steps).error().message().find("no node is there") != std::string::npos);
  CHECK(steps.taken == "nothing on a,b");
}

TEST_CASE("an observer that refuses ends the job before its processes, and what was prepared is cleaned up") {
  Steps steps;
  Refusing observer;
  CHECK(run(steps, &observer).error().message().find("the user has stopped it") != std::string::npos);
  CHECK(observer.nodes == 2);
  CHECK(steps.taken == "preparation on a,b; cleaning on a,b");
}

TEST_CASE("a directory for the output that cannot be made keeps its error, with the line that names it") {
  Steps steps;
  const auto refused = run(steps, nullptr, {}, "/file");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().sys_errno() == ENOTDIR);
  CHECK(exit_code_of(refused.error()) == exit_code::kUsage);
  CHECK(refused.error().message().find("job.yaml:1:") == 0);
  CHECK(steps.taken.empty());
}

TEST_CASE("the job's time limit counts from its beginning, and cleaning up has its own") {
  Steps steps;
  JobSpec job;
  job.timeout = 100s;
  CHECK(run(steps, nullptr, job).value() == 0);
  REQUIRE(steps.settings.size() == 3);
  CHECK(steps.settings[0].timeout == 100s);
  CHECK((steps.settings[1].timeout > 50s && steps.settings[1].timeout <= 100s));
  CHECK(steps.settings[2].timeout == 60s);
}

TEST_CASE("what a step on nodes is told of the job is what it needs, and cleaning up needs least") {
  Steps steps;
  JobSpec job;
  job.environment = {"PATH=/bin"};
  job.user_env = {{"PATH", "/opt"}};
  job.ssh_port = 2222;
  job.rsh_command = "rsh {host}";
  job.hidden = {"s3cr3t"};
  job.interfaces = {"eth0"};
  job.sync_dir = ".";
  job.sync_back = {"*.pt"};
  job.metrics_file = "job.prom";
  job.metrics_place.socket = "/run/metrics";
  job.live_dir = "/run/live";
  job.stall_after = 1s;
  job.is_silence_a_stall = true;
  job.excludes_failed_hosts = true;
  job.input = InputMode::kAll;
  job.output_dir = "out";
  CHECK(run(steps, nullptr, job).value() == 0);
  REQUIRE(steps.settings.size() == 3);
  CHECK(steps.has_tree == std::vector<bool>{true, true, false});
  for (const JobSpec& each : steps.settings) {  // how nodes are reached
    CHECK(each.environment == job.environment);
    CHECK(each.user_env == job.user_env);
    CHECK(each.ssh_port == 2222);
    CHECK(each.rsh_command == job.rsh_command);
    CHECK(each.hidden == job.hidden);
  }
  for (const std::size_t step : {0U, 2U}) {  // what only ranks have
    const JobSpec& each = steps.settings[step];
    CHECK(each.cwd == "/");
    CHECK(each.sync_back.empty());
    CHECK(each.stall_after == Duration::zero());
    CHECK_FALSE(each.is_silence_a_stall);
    CHECK_FALSE(each.excludes_failed_hosts);
    CHECK_FALSE(each.tells_place);
    CHECK(each.input == InputMode::kNone);
    CHECK(each.output_dir.empty());
    const bool is_shown = step == 0;  // who watches the job sees its preparation, and no more when it has ended
    CHECK(each.metrics_file.empty() != is_shown);
    CHECK(each.metrics_place.is_on() == is_shown);
    CHECK(each.live_dir.empty() != is_shown);
    CHECK(each.sync_dir.empty() != is_shown);
    CHECK(each.interfaces.empty() != is_shown);
  }
  CHECK(steps.settings[1].output_dir == "out");
  CHECK(steps.settings[1].metrics_file == "job.prom");
}

}  // namespace hvd::launch::file_job_test
