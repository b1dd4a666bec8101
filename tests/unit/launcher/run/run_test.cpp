// launcher/run and launcher/report: the job as scenarios of events, with neither processes nor sockets.
#include <errno.h>
#include <signal.h>

#include <variant>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/report/summary.h"
#include "launcher/run/start_plan.h"
#include "launcher/state/exit_codes.h"
#include "launcher/state/job_state.h"

namespace hvd::launch::run_test {
namespace {

struct Job {
  Placement placement = place(parse_host_list("a:2,b:2").value(), 4).value();
  std::vector<int> servers{};
  int restart_limit = 0;
  JobState state{placement, servers, restart_limit};

  std::string on(const JobEvent& event) {
    std::string names;
    for (const JobAction& action : state.on(event)) {
      static constexpr const char* kNames[] = {"start", "restart", "stop", "tell", "report", "finish"};
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

TEST_CASE("a rank that fails is started anew as often as is allowed, then the job fails") {
  Job job{.restart_limit = 2};
  job.run_all();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.on(RankJoined{rank}).empty());
  }
  for (int number = 1; number <= 2; ++number) {
    const auto actions = job.state.on(RankExited{1, kThree});
    REQUIRE(actions.size() == 1);
    const auto& restart = std::get<RestartRank>(actions.front());
    CHECK(restart.rank == 1);
    CHECK(restart.number == number);
    CHECK(restart.cause == "rank 1 on a (pid " + std::to_string(101 + 100 * (number - 1)) + ") exited with code 3");
    CHECK(job.on(RankStarted{1, 101 + 100 * number}).empty());
    CHECK(job.on(RankJoined{1}).empty());
  }
  CHECK(job.on(RankExited{1, kThree}) == "report tell stop");
  CHECK(job.state.exit_code() == 3);
  CHECK(job.state.cause()->lines.front() ==
        "rank 1 on a (pid 301) exited with code 3, after 2 restarts of ranks, the most that are allowed");
}

TEST_CASE("a rank is not started anew before it has joined, nor when another has ended in order") {
  Job early{.restart_limit = 2};
  early.run_all();
  CHECK(early.on(RankExited{1, kThree}) == "report tell stop");

  Job again{.restart_limit = 2};
  again.run_all();
  CHECK(again.on(RankJoined{1}).empty());
  CHECK(again.on(RankExited{1, kThree}) == "restart");
  CHECK(again.on(RankStarted{1, 200}).empty());
  CHECK(again.on(RankExited{1, kThree}) == "report tell stop");

  Job late{.restart_limit = 2};
  late.run_all();
  CHECK(late.on(RankJoined{1}).empty());
  CHECK(late.on(RankExited{0, kGood}).empty());
  CHECK(late.on(RankExited{1, kThree}) == "report tell stop");
  CHECK(late.state.cause()->lines.front() == "rank 1 on a (pid 101) exited with code 3");
}

TEST_CASE("when the job is being stopped no rank is started anew, and a lost node ends an elastic job too") {
  Job stopped{.restart_limit = 2};
  stopped.run_all();
  CHECK(stopped.on(RankJoined{1}).empty());
  CHECK(stopped.on(Interrupted{SIGINT}) == "report tell stop");
  CHECK(stopped.on(RankExited{1, kTerminated}).empty());

  Job lost{.restart_limit = 2};
  lost.run_all();
  CHECK(lost.on(NodeLost{1, Error(Code::kLostPeer, "x")}) == "report tell stop");
}

TEST_CASE("a job in which all goes well ends with 0") {
  Job job;
  job.run_all();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.on(RankExited{rank, kGood}).empty());
  }
  CHECK(job.on(NodeDone{1}).empty());
  CHECK(job.on(NodeDone{0}) == "finish");
  CHECK(job.state.exit_code() == 0);
  CHECK(describe_end({job.state, std::chrono::milliseconds(1234)}, job.placement) ==
        "hvdrun: 4 ranks on 2 nodes succeeded in 1.2 s");
  CHECK(job.on(NodeLost{0, Error(Code::kLostPeer, "x")}).empty());
}

TEST_CASE("servers are ended when the others have, and how they end is no failure") {
  Job job{.servers = {1, 2}};
  job.run_all();
  CHECK(job.on(RankExited{0, kGood}).empty());
  CHECK(job.on(RankExited{3, kGood}) == "stop");
  CHECK(job.on(RankExited{1, kTerminated}).empty());
  CHECK(job.on(RankExited{2, kThree}).empty());
  CHECK(job.on(NodeDone{0}).empty());
  CHECK(job.on(NodeDone{1}) == "finish");
  CHECK(job.state.exit_code() == 0);
  CHECK(count_ranks(job.state).succeeded == 4);
}

TEST_CASE("a server that fails while the others run is a failure, and one that ends is none") {
  Job job{.servers = {1, 2}};
  job.run_all();
  CHECK(job.on(RankExited{1, kGood}).empty());
  CHECK(job.on(RankExited{2, kThree}) == "report tell stop");
  CHECK(job.state.exit_code() == 3);
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
  CHECK(describe_end({job.state, std::chrono::seconds(125)}, job.placement) ==
        "hvdrun: job failed after 2 min 5 s: rank 2 on b (pid 102) exited with code 3; 3 other ranks were stopped; "
        "exit code 3");
}

TEST_CASE("all unreachable hosts are named, and nothing is started") {
  Job job;
  CHECK(job.on(NodeLost{1, Error(Code::kUnreachable, "b: refused")}).empty());
  CHECK(job.on(NodeLost{0, Error(Code::kUnreachable, "a: unknown")}) == "report finish");
  CHECK(job.state.cause()->lines == std::vector<std::string>{"b: refused", "a: unknown"});
  CHECK(job.state.exit_code() == exit_code::kUnreachable);
  CHECK(describe_end({job.state, {}}, job.placement).empty());
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
  CHECK(describe_end({job.state, {}}, job.placement).find("not all of their output could be kept") !=
        std::string::npos);
}

TEST_CASE("output that cannot be written once all ranks have ended still tells") {
  Job files;
  files.run_all();
  CHECK(files.on(NodeDone{0}).empty());
  CHECK(files.on(NodeDone{1}) == "finish");
  CHECK(files.on(FilesFailed{Error(Code::kResource, "full")}).empty());
  CHECK(files.state.exit_code() == exit_code::kOutputFailed);
  CHECK(files.on(OutputFailed{Error::from_errno("write", EPIPE)}).empty());
  CHECK(files.state.exit_code() == 141);
  Job failed;
  failed.run_all();
  CHECK(failed.on(RankExited{0, kThree}) == "report tell stop");
  CHECK(failed.on(StopTimedOut{}) == "finish");
  CHECK(failed.on(OutputFailed{Error::from_errno("write", ENOSPC)}).empty());
  CHECK(failed.state.exit_code() == 3);
}

TEST_CASE("a job that has run as long as it may is stopped, and that is the cause") {
  Job job;
  job.run_all();
  CHECK(job.on(TimedOut{"the timeout of job.yaml"}) == "report tell stop");
  CHECK(job.on(RankExited{1, kTerminated}).empty());
  CHECK(job.state.exit_code() == exit_code::kTimedOut);
  CHECK(job.state.cause()->lines.front() == "the job has run for as long as the timeout of job.yaml allows");
}

TEST_CASE("a node that does not report its end in time is left") {
  Job job;
  job.run_all();
  CHECK(job.on(RankExited{0, kThree}) == "report tell stop");
  CHECK(job.on(StopTimedOut{}) == "finish");
  CHECK(job.state.phase() == JobPhase::kDone);
}

namespace {

using Addresses = std::vector<std::string>;

NodeView view_of(Opened opened, Addresses networks = {}) {
  NodeView view;
  view.opened = std::move(opened);
  for (std::string& network : networks) {
    view.ready.addresses.push_back(network.substr(0, network.find('/')));
    const std::string interface = "eth" + std::to_string(view.ready.networks.size());
    view.ready.networks.push_back({interface, std::move(network)});
  }
  return view;
}

const Opened kUnseen{};  // as by an rsh command whose host name means nothing here

}  // namespace

TEST_CASE("nodes reach each other as the launcher reached them, and the local one by the launcher's address") {
  const NodeView local = view_of({true, "", "", {}}, {"10.0.0.77/8"});
  const NodeView remote = view_of({false, "10.0.0.2", "10.0.0.9", {}}, {"10.0.0.2/8"});
  CHECK(data_addresses({local}) == Addresses{"127.0.0.1"});
  CHECK(data_addresses({local}, {}, true) == Addresses{"10.0.0.77"});  // others may join, and must reach it
  CHECK(data_addresses({view_of({true, "", "", {}})}, {}, true) == Addresses{"127.0.0.1"});
  CHECK(data_addresses({local, remote}) == Addresses{"10.0.0.9", "10.0.0.2"});
}

TEST_CASE("a node that no connection shows is met at what its name means, if it has that address") {
  const NodeView named = view_of({false, "", "", {"127.0.1.1", "10.0.0.1"}}, {"192.168.0.1/24", "10.0.0.1/24"});
  const NodeView translated = view_of({false, "", "", {"8.8.8.8"}}, {"192.168.0.2/24"});
  CHECK(data_addresses({named, translated}) == Addresses{"10.0.0.1", "192.168.0.2"});
  CHECK(data_addresses({named}) == Addresses{"10.0.0.1"});
  CHECK(data_addresses({translated}) == Addresses{"127.0.0.1"});
}

TEST_CASE("a node that does not have the address at which it was reached is met at one of its own") {
  const NodeView a = view_of({false, "3.4.5.6", "192.168.1.5", {}}, {"172.17.0.1/16", "10.0.0.6/24"});
  const NodeView b = view_of({false, "3.4.5.7", "192.168.1.5", {}}, {"172.17.0.1/16", "10.0.0.7/24"});
  CHECK(data_addresses({a, b}) == Addresses{"10.0.0.6", "10.0.0.7"});
  NodeView on_loopback = view_of({false, "10.9.0.1", "", {}}, {"10.0.0.6/24"});  // as where hosts take part in routing
  CHECK(is_translated(on_loopback));
  on_loopback.ready.addresses.emplace_back("10.9.0.1");
  CHECK(!is_translated(on_loopback));
}

TEST_CASE("an address of one interface alone is not what others are told") {
  const NodeView local = view_of({true, "", "", {}}, {"172.17.0.1/16", "10.0.0.9/24"});
  const NodeView a = view_of({false, "fe80::1:2%eth0", "fe80::1:9%eth0", {}}, {"172.17.0.1/16", "10.0.0.1/24"});
  const NodeView b = view_of({false, "10.0.0.2", "10.0.0.9", {}}, {"10.0.0.2/24"});
  CHECK(data_addresses({local, a}) == Addresses{"10.0.0.9", "10.0.0.1"});
  CHECK(data_addresses({local, a, b}) == Addresses{"10.0.0.9", "10.0.0.1", "10.0.0.2"});
  CHECK(!is_translated(a));
  const NodeView six = view_of({false, "febf::1%eth0", "fe80::9", {}}, {"fd00::1/64"});
  const NodeView reached = view_of({false, "fd00::2", "fd00::9", {}}, {"fd00::2/64"});
  CHECK(data_addresses({six, reached}) == Addresses{"fd00::1", "fd00::2"});
}

TEST_CASE("without a name it is the address that has the other nodes for neighbours") {
  const NodeView a = view_of(kUnseen, {"172.17.0.1/16", "10.1.0.1/24", "192.168.7.1/24"});
  const NodeView b = view_of(kUnseen, {"172.17.0.1/16", "192.168.7.2/24"});
  CHECK(data_addresses({a, b}) == Addresses{"192.168.7.1", "192.168.7.2"});
  const NodeView local = view_of({true, "", "", {}}, {"10.9.0.1/24", "192.168.7.3/24"});
  CHECK(data_addresses({local, b}) == Addresses{"192.168.7.3", "192.168.7.2"});
  const NodeView v6 = view_of(kUnseen, {"10.2.0.1/24", "fd00::1/64"});
  const NodeView v6_too = view_of(kUnseen, {"10.3.0.1/24", "fd00::2/64"});
  CHECK(data_addresses({v6, v6_too}) == Addresses{"fd00::1", "fd00::2"});
}

TEST_CASE("the user's choice of interfaces wins over all that is known of the ways to a node") {
  const NodeView a = view_of({false, "10.0.0.1", "10.0.0.9", {}}, {"10.0.0.1/24", "192.168.7.1/24"});
  const NodeView b = view_of({true, "", "", {}}, {"10.0.0.9/24", "192.168.7.2/24"});
  CHECK(data_addresses({a, b}, {"eth1"}) == Addresses{"192.168.7.1", "192.168.7.2"});
  CHECK(data_addresses({a, b}, {"ib0", "eth0"}) == Addresses{"10.0.0.1", "10.0.0.9"});
  CHECK(data_addresses({b, b}, {"lo"}) == Addresses{"127.0.0.1", "127.0.0.1"});
  CHECK(data_addresses({b}, {"eth1"}) == Addresses{"192.168.7.2"});
  CHECK(interface_of(a, "192.168.7.1") == "eth1");
  CHECK(interface_of(a, "192.168.7.9").empty());
  CHECK(missing_interface(a, "node1", {}).empty());
  CHECK(missing_interface(a, "node1", {"ib0", "eth1"}).empty());
  CHECK(
      missing_interface(a, "node1", {"ib0", "ib1"}) ==
      "node1 has no interface ib0 or ib1 that is up with an address (--network-interfaces); it has eth0 (10.0.0.1/24), "
      "eth1 (192.168.7.1/24)");
}

TEST_CASE("without neighbours an address that no other node has comes first; without any it is loopback") {
  const NodeView a = view_of(kUnseen, {"172.17.0.1/16", "10.1.0.1/32"});
  const NodeView b = view_of(kUnseen, {"172.17.0.1/16", "10.2.0.1/32"});
  CHECK(data_addresses({a, b}) == Addresses{"10.1.0.1", "10.2.0.1"});
  CHECK(data_addresses({a, a}) == Addresses{"172.17.0.1", "172.17.0.1"});  // one machine under two names
  const NodeView none = view_of(kUnseen, {"", "10.0.0.1", "10.0.0.1/33", "10.0.0.1/", "x/8", "fd00::1/129"});
  CHECK(data_addresses({none, none}) == Addresses{"127.0.0.1", "127.0.0.1"});
  CHECK(data_addresses({a}) == Addresses{"127.0.0.1"});
}

TEST_CASE("ranks that a job has, or may get by hosts that join, can be shown") {
  JobSpec spec;
  CHECK(check_shown_ranks(spec, 4).ok());
  spec.shown_ranks = ShownRanks::parse("0,2-3").value();
  CHECK(check_shown_ranks(spec, 4).ok());
  CHECK(check_shown_ranks(spec, 3).error().message() == "--show-ranks 3: the last rank is 2");
  spec.join_file = "job.join";
  CHECK(check_shown_ranks(spec, 3).ok());
  spec.discovery.most_ranks = 3;
  CHECK(check_shown_ranks(spec, 2).error().message() == "--show-ranks 3: the last rank is 2");
}

TEST_CASE("a remote node gets the user's variables, a local one has them") {
  Job job;
  JobSpec spec;
  spec.argv = {"x"};
  spec.environment = {"KEEP=1", "HOME=/h", "RANK=9", "OMP_NUM_THREADS=4"};
  spec.user_env = {{"X", "y"}};
  const NodeView local = view_of({true, "", "", {}});
  const NodeView remote = view_of({false, "10.0.0.2", "10.0.0.9", {}});
  const std::vector<NodeView> views = {local, remote};
  const auto messages = make_start_messages(spec, {job.placement, job.placement, views}, "id", "t");
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].env.empty());
  CHECK(messages[1].env == EnvList{{"KEEP", "1"}, {"OMP_NUM_THREADS", "4"}});
  CHECK(messages[1].unset == std::vector<std::string>{"RANK"});
  CHECK(messages[1].last == EnvList{{"X", "y"}});
  CHECK(messages[1].ranks.size() == 2);
}

TEST_CASE("an engine that ends before its agents have called is a failure to start, of a kind that its words tell") {
  for (const auto& [code, exit] : {std::pair{Code::kInvalid, exit_code::kUsage},
                                   {Code::kUnreachable, exit_code::kUnreachable},
                                   {Code::kTimeout, exit_code::kUnreachable},
                                   {Code::kSystem, exit_code::kStartFailed}}) {
    Job job;
    CHECK(job.on(NodeReady{0}).empty());
    CHECK(job.on(EngineEnded{Error(code, "mpirun exited with code 1")}) == "report finish");
    CHECK(job.state.exit_code() == exit);
    CHECK(job.state.cause()->lines.front() == "the ranks could not be started: mpirun exited with code 1");
    CHECK(job.on(NodeLost{0, Error(Code::kLostPeer, "x")}).empty());
  }
}

TEST_CASE("an engine that ends while ranks run ends the job, unless one of them has failed before or all is done") {
  Job running;
  running.run_all();
  CHECK(running.on(EngineEnded{Error(Code::kInvalid, "mpirun was killed")}) == "report tell stop");
  CHECK(running.state.exit_code() == exit_code::kNodeLost);
  CHECK(running.state.cause()->lines.front() == "while the ranks ran, mpirun was killed");
  CHECK(running.on(RankExited{0, kTerminated}).empty());
  CHECK(running.on(NodeDone{0}).empty());
  CHECK(running.on(NodeDone{1}) == "finish");

  Job failed;
  failed.run_all();
  CHECK(failed.on(RankExited{2, kThree}) == "report tell stop");
  CHECK(failed.on(EngineEnded{Error(Code::kSystem, "mpirun exited with code 3")}).empty());
  CHECK(failed.state.exit_code() == 3);
}

TEST_CASE("a rank that an engine has put elsewhere ends the job before anything runs") {
  Job job;
  CHECK(job.on(NodeReady{0}).empty());
  CHECK(job.on(NodeReady{1}) == "start");
  CHECK(job.on(Misplaced{Error(Code::kInvalid, "rank 1 was put elsewhere")}) == "report tell stop");
  CHECK(job.state.exit_code() == exit_code::kUsage);
  CHECK(job.on(NodeDone{0}).empty());
  CHECK(job.on(NodeDone{1}) == "finish");
}

namespace {

// Four agents of an engine, as Open MPI would have it.
struct EngineJob {
  Job job;
  Placement agents = one_node_per_rank(job.placement);
  std::vector<NodeView> views;
  EngineJob() {
    for (int rank = 0; rank < 4; ++rank) {
      NodeView view = view_of({true, "127.0.0.1", "127.0.0.1", {}});
      view.ready.seat = Seat{rank, 4, rank % 2, 2};
      view.ready.host_name = rank < 2 ? "a.cluster" : "b.cluster";
      view.ready.socket_path = "/s" + std::to_string(rank);
      views.push_back(view);
    }
  }
  [[nodiscard]] hvd::Result<void> check() const { return check_seats({job.placement, agents, views}); }
};

}  // namespace

TEST_CASE("a job whose nodes were reached by address translation is told so in one line") {
  EngineJob engine;
  engine.views[1] = view_of({false, "3.4.5.6", "", {}}, {"10.0.0.6/24"});
  engine.views[3] = view_of({false, "3.4.5.7", "", {}}, {"10.0.0.7/24"});
  const JobView job{engine.job.placement, engine.agents, engine.views};
  JobSpec spec;
  CHECK(start_warnings(spec, job) ==
        std::vector<std::string>{
            "a was reached at 3.4.5.6, which it does not have itself (address translation?); its ranks are reached at "
            "10.0.0.6, and so it is with 1 other node; --network-interfaces chooses others"});
  spec.interfaces = {"eth0"};
  CHECK(start_warnings(spec, job).empty());
}

TEST_CASE("ranks of an engine are where the placement says, or it is told where they are") {
  EngineJob good;
  CHECK(good.check().ok());
  good.views[0].ready.host_name = good.views[1].ready.host_name = "some-other-name";  // an alias tells nothing
  CHECK(good.check().ok());

  EngineJob crossed;
  crossed.views[1].ready.host_name = "b.cluster";
  CHECK(crossed.check().error().message().find(
            "rank 1 was put elsewhere than planned: it is local rank 1 of 2 on b.cluster, of 4 in all, and is to be "
            "local rank 1 of 2 on a, of 4 in all") == 0);
  EngineJob swapped;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    swapped.views[rank].ready.host_name = rank < 2 ? "b" : "a";
  }
  CHECK_FALSE(swapped.check().ok());
  EngineJob more;
  more.views[3].ready.seat.size = 5;
  CHECK_FALSE(more.check().ok());
  EngineJob unlike;
  unlike.views[2].ready.seat.local_rank = 1;
  CHECK_FALSE(unlike.check().ok());
  CHECK(unlike.check().error().message().find("one machine") == std::string::npos);
  EngineJob twice;  // one host by two names
  twice.views[0].ready.seat.local_size = 4;
  CHECK(twice.check().error().message().find("; are two of the hosts one machine? Then name it once") !=
        std::string::npos);
  EngineJob split;  // of one node two, of which neither has the name of another
  split.views[1].ready.host_name = "elsewhere";
  CHECK_FALSE(split.check().ok());
}

TEST_CASE("ranks of Open MPI keep its variables, have an agent each, and are placed as everywhere") {
  EngineJob engine;
  JobSpec spec;
  spec.argv = {"x"};
  spec.launcher = LauncherKind::kMpi;
  spec.environment = {"KEEP=1", "RANK=9", "PMIX_RANK=9"};
  const auto messages = make_start_messages(spec, {engine.job.placement, engine.agents, engine.views}, "id", "t");
  REQUIRE(messages.size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    const StartMessage& start = messages[static_cast<std::size_t>(rank)];
    REQUIRE(start.ranks.size() == 1);
    CHECK(start.unset.empty());
    const auto value = [&start](const std::string& name) -> std::string {
      for (const auto& [known, text] : start.ranks.front().env) {
        if (known == name) {
          return text;
        }
      }
      return "(none)";
    };
    CHECK(value("HVD_RANK") == std::to_string(rank));
    CHECK(value("LOCAL_RANK") == std::to_string(rank % 2));
    CHECK(value("LOCAL_WORLD_SIZE") == "2");
    CHECK(value("HVD_NODE_INDEX") == std::to_string(rank / 2));
    CHECK(value("HVD_AGENT_SOCKET") == "/s" + std::to_string(rank));
    CHECK(value("OMPI_COMM_WORLD_RANK") == "(none)");
    CHECK(value("OMPI_MCA_orte_hnp_uri") == "(none)");
  }
}

TEST_CASE("tasks of Spark on one machine see each other's GPUs, each rank's own at its local rank") {
  EngineJob engine;
  JobSpec spec;
  spec.argv = {"x"};
  spec.launcher = LauncherKind::kSpark;
  const std::vector<std::vector<std::string>> gpus = {{"2", "3"}, {"0", "1"}, {"7"}, {"5"}};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    engine.views[rank].ready.gpu_variable = "CUDA_VISIBLE_DEVICES";
    engine.views[rank].ready.gpus = gpus[rank];
  }
  const auto seen = [&engine, &spec](std::size_t rank) {
    const auto messages = make_start_messages(spec, {engine.job.placement, engine.agents, engine.views}, "id", "t");
    std::string text;
    for (const auto& [name, value] : messages[rank].ranks.front().env) {
      text += name == "CUDA_VISIBLE_DEVICES" ? value : name == "JAX_LOCAL_DEVICE_IDS" ? " " + value : "";
    }
    return text;
  };
  CHECK(seen(0) == "2,0,3,1 0");
  CHECK(seen(1) == "2,0,3,1 1");
  CHECK(seen(2) == "7,5 0");
  CHECK(seen(3) == "7,5 1");
  CHECK(start_warnings(spec, {engine.job.placement, engine.agents, engine.views}).empty());
  // Where Spark gives out no GPUs, each task tells of all.
  engine.views[0].ready.gpus = engine.views[1].ready.gpus = {"0", "1", "2"};
  CHECK(seen(1) == " 1");
}

TEST_CASE(
    "a task of Spark that joins the job sees the GPUs of its machine's other tasks, and its own at its local rank") {
  EngineJob engine;
  JobSpec spec;
  spec.argv = {"x"};
  spec.launcher = LauncherKind::kSpark;
  Placement agents = engine.agents;
  agents.add(agents.nodes[2].host, 2, 1);
  std::map<int, NodeView> views;
  for (int agent = 0; agent < 5; ++agent) {
    NodeView view = engine.views[static_cast<std::size_t>(std::min(agent, 3))];
    view.ready.machine = agent < 2 ? "a" : "b";
    view.ready.gpu_variable = "CUDA_VISIBLE_DEVICES";
    view.ready.gpus = {std::to_string(7 - agent)};
    views.emplace(agent, view);
  }
  const auto seen_by_newcomer = [&] {
    const StartMessage start = late_start_message(spec, agents, views, 4, LateStart{"id", "t", 1});
    for (const auto& [name, value] : start.ranks.front().env) {
      if (name == "CUDA_VISIBLE_DEVICES") {
        return value;
      }
    }
    return std::string();
  };
  CHECK(seen_by_newcomer() == "5,4,3");
  views.erase(2);  // it is lost
  CHECK(seen_by_newcomer() == "4,3");
}

}  // namespace hvd::launch::run_test
