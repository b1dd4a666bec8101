// launcher/steps/restarted_job: which starts a job makes that starts anew, without a process.
#include "launcher/steps/restarted_job.h"

#include <signal.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/state/exit_codes.h"
#include "tests/support/silence.h"

namespace hvd::launch::restarted_job_test {

using namespace std::chrono_literals;

namespace {

// How a start ends; -1: without a failure, or with all nodes.
struct End {
  int failed_rank = -1;
  int lost_node = -1;
  int unreached_node = -1;  // no rank is started
  bool is_untold = false;   // as when an engine could not begin it
  int late_signo = 0;       // hvdrun gets it when the ranks have ended, and their engine has not
};

// Carries out starts that end as they are told, by the events that a runner would see.
struct Starts {
  Result<int> run(const JobStep& step) {
    const Placement& placement = step.placement;
    sizes.push_back(placement.size);
    before.push_back(step.job.fresh.before);
    inputs.push_back(step.job.input);
    timeouts.push_back(step.job.timeout);
    const End end = ends.front();
    ends.pop_front();
    if (end.is_untold) {
      return exit_code::kStartFailed;
    }
    JobState state(placement);
    for (const NodePlan& node : placement.nodes) {
      if (node.index == end.unreached_node) {
        state.on(NodeLost{node.index, Error(Code::kUnreachable, "no route")});
      } else {
        state.on(NodeReady{node.index});
      }
    }
    for (int rank = 0; rank < placement.size && end.unreached_node < 0; ++rank) {
      state.on(RankStarted{rank, 100 + rank});
    }
    if (end.failed_rank >= 0) {
      state.on(RankExited{end.failed_rank, ExitStatus{ExitStatus::Kind::kExited, 7}});
    }
    if (end.lost_node >= 0) {
      state.on(NodeLost{end.lost_node, Error(Code::kLostPeer, "it is gone")});
    }
    for (const NodePlan& node : placement.nodes) {
      if (!state.is_over(node.index)) {
        state.on(NodeDone{node.index});
      }
    }
    step.report_by(std::make_unique<test::Silence>(), placement)->on(news::Ended{state, 1s});
    const bool is_cut =
        end.late_signo != 0 && step.on_late_signal && step.on_late_signal(end.late_signo, state.exit_code());
    return is_cut ? 128 + end.late_signo : state.exit_code();
  }

  std::deque<End> ends;
  std::vector<int> sizes{};
  std::vector<int> before{};
  std::vector<InputMode> inputs{};
  std::vector<Duration> timeouts{};
};

Result<int> run(Starts& starts, int least, int limit, const std::string& page = "", const HostDiscovery& discovery = {},
                int input_rank = 0) {
  JobSpec job;
  job.hosts = parse_host_list("a:2,b:2").value();
  job.size = 4;
  job.least_ranks = least;
  job.fresh.limit = limit;
  job.input = InputMode::kOne;
  job.input_rank = input_rank;
  job.json_events = true;
  job.page = page;
  job.discovery = discovery;
  job.elastic_timeout = 0s;
  job.timeout = 60s;
  const SteadyClock clock;
  JobRecords records(job, clock);
  return RestartedJob(job, place(job.hosts, job.size).value(), records,
                      [&starts](const JobStep& step) { return starts.run(step); })
      .run();
}

}  // namespace

TEST_CASE("a job that starts anew is over at its first good end, and its input goes to the first start alone") {
  Starts starts{{{1}, {0}, {}}};
  CHECK(run(starts, 4, 5).value() == 0);
  CHECK(starts.sizes == std::vector<int>{4, 4, 4});
  CHECK(starts.before == std::vector<int>{0, 1, 2});
  CHECK(starts.inputs == std::vector<InputMode>{InputMode::kOne, InputMode::kNone, InputMode::kNone});
}

TEST_CASE("a signal that comes between two starts ends the job, and one after the last comes too late") {
  End failed{1};
  failed.late_signo = SIGINT;
  Starts starts{{failed}};
  CHECK(run(starts, 4, 5).value() == 128 + SIGINT);
  CHECK(starts.sizes == std::vector<int>{4});
  End good;
  good.late_signo = SIGINT;
  Starts others{{{1}, good}};
  CHECK(run(others, 4, 5).value() == 0);
  Starts last{{failed}};
  CHECK(run(last, 4, 0).value() == 7);
}

TEST_CASE("the last start that is allowed gives the job its exit code") {
  Starts starts{{{1}, {1}}};
  CHECK(run(starts, 4, 1).value() == 7);
  CHECK(starts.sizes == std::vector<int>{4, 4});
}

TEST_CASE("a start after a lost host has the ranks of the others, as long as these are enough") {
  Starts starts{{{-1, 1}, {}}};
  CHECK(run(starts, 2, 3, "", {}, 3).value() == 0);
  CHECK(starts.sizes == std::vector<int>{4, 2});
  CHECK(starts.inputs == std::vector<InputMode>{InputMode::kOne, InputMode::kNone});  // rank 3, which had it, is gone
  Starts too_few{{{-1, 1}}};
  CHECK(run(too_few, 4, 3).value() == exit_code::kNodeLost);
  CHECK(too_few.sizes == std::vector<int>{4});
}

TEST_CASE("a first start in which the rank with the input has no place is none") {
  HostDiscovery discovery;
  discovery.script = "echo a:2; echo b:2";
  Starts starts{{{-1, -1, 1}}};
  CHECK(run(starts, 2, 0, "", discovery, 3).value() == exit_code::kUnreachable);
  CHECK(starts.sizes == std::vector<int>{4});
}

TEST_CASE("a first start without a host that cannot be reached begins at once, counts for none, and has the input") {
  HostDiscovery discovery;
  discovery.script = "echo a:2; echo b:2";
  Starts starts{{{-1, -1, 1}, {}}};
  CHECK(run(starts, 2, 0, "", discovery).value() == 0);
  CHECK(starts.sizes == std::vector<int>{4, 2});
  CHECK(starts.before == std::vector<int>{0, 0});
  CHECK(starts.inputs == std::vector<InputMode>{InputMode::kOne, InputMode::kOne});
  CHECK(starts.timeouts[1] > 59s);
  Starts named{{{-1, -1, 1}}};
  CHECK(run(named, 2, 0).value() == exit_code::kUnreachable);
  CHECK(named.sizes == std::vector<int>{4});
}

TEST_CASE("a start that could not begin is the last one") {
  Starts starts{{{1}, {-1, -1, -1, true}}};
  CHECK(run(starts, 4, 5).value() == exit_code::kStartFailed);
  CHECK(starts.sizes == std::vector<int>{4, 4});
}

TEST_CASE("a job that ends because too few hosts are left has a page that says so") {
  const std::string path =
      std::filesystem::temp_directory_path() / ("restarted_job_test." + std::to_string(::getpid()));
  Starts too_few{{{-1, 1}}};
  HostDiscovery discovery;
  discovery.script = "echo a:2";
  CHECK(run(too_few, 4, 3, path, discovery).value() == exit_code::kNodeLost);
  std::ifstream file(path);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  CHECK(page.find("Failed with code " + std::to_string(exit_code::kNodeLost)) != std::string::npos);
  CHECK(page.find("the hosts that are left have 2 slots") != std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace hvd::launch::restarted_job_test
