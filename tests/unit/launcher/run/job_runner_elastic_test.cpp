// launcher/run/job_runner: elastic jobs, which go on without ranks and nodes that are lost (job_runner_test.cpp has
// those in which every rank counts).
#include <signal.h>

#include <doctest/doctest.h>

#include "launcher/state/exit_codes.h"
#include "tests/unit/launcher/run/job_scenario.h"

namespace hvd::launch::job_runner_elastic_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

namespace {

using Kind = GenerationMessage::Kind;

// A job that goes on with `least` ranks. All of them join after one second.
struct Elastic : JobScenario {
  Elastic(const std::string& hosts, int least) : JobScenario(hosts) {
    spec.restart_limit = 3;
    spec.least_ranks = least;
    spec.reconnect_timeout = Duration::zero();
    at(1s, [this] {
      for (const NodePlan& plan : placement.nodes) {
        for (const RankPlan& rank : plan.ranks) {
          node(plan.index + 1).join(rank.rank);
        }
      }
    });
  }

  // What the node was told last of who trains together.
  GenerationMessage last(int number) {
    FakeNode& told = node(number);
    return GenerationMessage::decode(told.body(AgentMessage::kGeneration, told.count(AgentMessage::kGeneration) - 1))
        .value();
  }
};

// Hosts as a test names them.
class ToldHosts final : public HostSource {
 public:
  void start(Handlers handlers) override { handlers_ = std::move(handlers); }
  void stop() override {}
  void tell(const std::string& hosts) const { handlers_.on_hosts(parse_host_list(hosts).value()); }

 private:
  Handlers handlers_;
};

const Error kGone(Code::kLostPeer, "its machine is gone");

}  // namespace

TEST_CASE("an elastic job goes on without a rank at once, and takes it in again when it has come") {
  Elastic job("node1:2,node2:1", 2);
  job.at(2s, [&] { job.node(1).exit(0, killed(SIGKILL)); });
  job.at(3s, [&] {
    CHECK(job.last(1).kind == Kind::kFormed);
    CHECK(job.last(1).number == 1);
    CHECK(job.last(1).start.has_value());
    REQUIRE(job.last(1).members.size() == 1);
    CHECK(job.last(1).members.front().rank == 1);
    CHECK(job.last(1).members.front().place.rank == 0);
    CHECK(job.last(2).members.front().place.size == 2);
    CHECK_FALSE(job.last(2).cause.empty());
    job.node(1).exchange(1, "address", "a", 1);
    job.node(2).exchange(2, "address", "b", 1);
  });
  job.at(4s, [&] {
    const auto told = ExchangedMessage::decode(job.node(2).body(AgentMessage::kExchanged)).value();
    CHECK(told.values == std::vector<std::string>{"a", "b"});
    CHECK(told.generation == 1);
    job.node(1).join(0, 1, true);
  });
  job.at(5s, [&] {
    CHECK(job.last(2).kind == Kind::kChanged);
    job.node(1).join(1, 1, true), job.node(2).join(2, 1, true);
  });
  job.at(6s, [&] {
    CHECK(job.last(2).kind == Kind::kFormed);
    CHECK(job.last(2).number == 2);
    CHECK(job.last(2).cause.empty());
    CHECK(job.last(1).members.size() == 2);
    CHECK(job.last(1).members.front().rank == 0);
    CHECK(job.last(1).members.front().place.rank == 1);  // behind the one that has stayed
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("an elastic job goes on without a node that is lost, and ends with the ranks that are left") {
  Elastic job("node1:1,node2:1,node3:1", 2);
  job.at(2s, [&] { job.node(2).cut(kGone.code(), kGone.message()); });
  job.at(3s, [&] {
    CHECK(job.last(3).members.front().place.rank == 1);
    CHECK(job.told("note: ").find("the others go on without it") != std::string::npos);
    job.node(1).exit_all(exited(0)), job.node(3).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a node that is lost is done without, also when no more ranks may be started again") {
  Elastic job("node1:2,node2:1,node3:1", 2);
  job.spec.restart_limit = 1;
  job.at(2s, [&] { job.node(1).exit(0, killed(SIGKILL)); });
  job.at(4s, [&] { job.node(3).cut(kGone.code(), kGone.message()); });
  job.at(5s, [&] {
    CHECK(job.told("note: ").find("the others go on without it") != std::string::npos);
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("with --elastic-wait the others wait for one in place of a lost rank") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.spec.elastic_wait = 20s;
  job.at(2s, [&] { job.node(2).exit(1, killed(SIGKILL)); });
  job.at(10s, [&] {
    CHECK(job.last(1).kind == Kind::kBroken);
    job.node(1).join(0, 0, true), job.node(3).join(2, 0, true), job.node(2).join(1, 0, true);
  });
  job.at(11s, [&] {
    CHECK(job.last(1).kind == Kind::kFormed);
    CHECK(job.last(1).members.front().place.size == 3);
    for (const int number : {1, 2, 3}) {
      job.node(number).exit_all(exited(0));
    }
  });
  CHECK(job.run() == 0);
}

TEST_CASE("with --elastic-wait the others go on without a lost node when the time is over") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.spec.elastic_wait = 20s;
  job.at(2s, [&] { job.node(2).cut(kGone.code(), kGone.message()); });
  job.at(15s, [&] { job.node(3).exit(2, killed(SIGKILL)); });  // it is waited for no longer than the first
  job.at(21s, [&] { CHECK(job.last(1).kind != Kind::kFormed); });
  job.at(23s, [&] {
    CHECK(job.told("note: ").find("the others wait for another in its place, at most for --elastic-wait") !=
          std::string::npos);
    CHECK(job.last(1).kind == Kind::kFormed);
    CHECK(job.last(1).members.front().place.size == 1);
    job.node(1).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

namespace {

// Two ranks fail at once, each with an error of its own, and both are started again. They do so twice.
void fail_twice(Elastic& job, bool has_committed) {
  const auto fail_all = [&job, has_committed] {
    for (const int rank : {0, 1}) {
      FakeNode& node = job.node(rank + 1);
      FailureNews news{FailureNews::Kind::kEnds, -1, 1, "KeyError: " + std::to_string(rank)};
      news.has_committed = has_committed;
      node.fail(rank, news);
      node.exit(rank, exited(1));
    }
  };
  job.at(2s, fail_all);
  job.at(4s, [&job] { job.node(1).join(0, 0, true), job.node(2).join(1, 0, true); });
  job.at(6s, fail_all);
}

}  // namespace

TEST_CASE("a job whose ranks all fail as they did before, with nothing committed in between, ends") {
  Elastic job("node1:1,node2:1", 1);
  job.spec.restart_limit = 10;
  fail_twice(job, false);
  job.at(8s, [&] { job.node(1).exit_all(killed(SIGTERM)); });
  CHECK(job.run() == 1);
  CHECK(job.count("restarted: ") == 3);
  CHECK(job.told("cause: ").find("every rank has failed twice with the same error") != std::string::npos);
  CHECK(job.told("cause: ").find("KeyError: 0") != std::string::npos);
}

TEST_CASE("a job whose ranks fail as they did before, but have committed in between, goes on") {
  Elastic job("node1:1,node2:1", 1);
  job.spec.restart_limit = 10;
  fail_twice(job, true);
  job.at(8s, [&] {
    CHECK(job.count("restarted: ") == 4);
    job.node(1).join(0, 1, true), job.node(2).join(1, 1, true);
  });
  job.at(9s, [&] { job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0)); });
  CHECK(job.run() == 0);
}

TEST_CASE("a node whose agent is told to end leaves in order, if the others are enough") {
  Elastic job("node1:1,node2:1,node3:1", 2);
  job.at(2s, [&] { job.node(2).say(AgentMessage::kLeaving, "it got SIGTERM"); });
  job.at(3s, [&] {
    CHECK(job.last(1).kind == Kind::kChanged);
    for (const int number : {1, 2, 3}) {
      job.node(number).join(number - 1, 0, true);
    }
  });
  job.at(4s, [&] {
    CHECK(job.last(1).kind == Kind::kFormed);
    CHECK(job.last(1).members.front().place.size == 2);
    CHECK(job.last(2).released == std::vector<std::int32_t>{1});
    job.node(2).exit(1, exited(0));
  });
  job.at(6s, [&] { CHECK(job.node(2).count(AgentMessage::kBye) == 1); });
  // Now each is needed.
  job.at(7s, [&] { job.node(3).say(AgentMessage::kLeaving, "it got SIGTERM"); });
  job.at(8s, [&] { job.node(1).exit_all(killed(SIGTERM)), job.node(3).exit_all(killed(SIGTERM)); });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.told("cause: ").find("the agent on node3 ends") != std::string::npos);
}

TEST_CASE("a job all of whose agents are told to end is over, although each could be done without") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.at(2s, [&] {
    for (const int number : {1, 2, 3}) {
      job.node(number).say(AgentMessage::kLeaving, "it got SIGTERM");
    }
  });
  job.at(3s, [&] {
    for (const int number : {1, 2, 3}) {
      CHECK(job.node(number).count(AgentMessage::kStop) == 1);
      job.node(number).exit_all(killed(SIGTERM));
    }
  });
  CHECK(job.run() == exit_code::kNodeLost);
  CHECK(job.runner->was_told_to_end());
}

TEST_CASE("SIGUSR1 ends a job that Slurm is to begin anew, and goes to the ranks of any other") {
  for (const bool is_requeued : {true, false}) {
    JobScenario job("node1:1");
    job.spec.requeued_job = is_requeued ? "12" : "";
    job.at(1s, [&] { job.runner->on_signal(SIGUSR1); });
    job.at(2s, [&] {
      CHECK(job.node(1).count(AgentMessage::kForward) == (is_requeued ? 0 : 1));
      CHECK(job.node(1).count(AgentMessage::kStop) == (is_requeued ? 1 : 0));
      job.node(1).exit_all(exited(0));
    });
    CHECK(job.run() == (is_requeued ? 128 + SIGUSR1 : 0));
    CHECK(job.runner->was_told_to_end() == is_requeued);
  }
}

TEST_CASE("a node whose agent ends is done without like one that is lost") {
  Elastic job("node1:1,node2:1,node3:1", 2);
  job.at(2s, [&] { job.node(2).say(AgentMessage::kEnding, "it got SIGTERM"); });
  job.at(3s, [&] {
    CHECK(job.last(1).members.front().place.size == 2);
    job.node(2).exit(1, killed(SIGTERM));
    CHECK(job.count("restarted: ") == 0);
  });
  job.at(4s, [&] { job.node(1).exit_all(exited(0)), job.node(3).exit_all(exited(0)); });
  CHECK(job.run() == 0);
}

TEST_CASE("an agent that ends when its ranks had all been done without before takes nothing with it") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.at(2s, [&] { job.node(2).say(AgentMessage::kEnding, "it got SIGTERM"); });
  job.at(3s, [&] { job.node(2).say(AgentMessage::kEnding, "it got SIGTERM"); });
  job.at(4s, [&] {
    CHECK(job.last(1).members.front().place.size == 2);
    job.node(2).exit(1, killed(SIGTERM)), job.node(1).exit_all(exited(0)), job.node(3).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a rank that fails before it is taken in again disturbs nobody") {
  Elastic job("node1:1,node2:1,node3:1", 2);
  job.at(2s, [&] { job.node(3).exit(2, killed(SIGKILL)); });
  job.at(3s, [&] {
    CHECK(job.last(1).number == 1);
    CHECK(job.last(1).is_growing);
    job.node(3).exit(2, exited(1));  // in its imports
  });
  job.at(4s, [&] {
    CHECK(job.last(1).kind == Kind::kStart);  // nothing changes, but that nobody is on the way any more
    CHECK_FALSE(job.last(1).is_growing);
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a rank that tells of its failure before it is taken in again disturbs nobody, and has no blame later") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.spec.restart_limit = 1;
  job.at(2s, [&] { job.node(3).exit(2, killed(SIGKILL)); });
  job.at(3s, [&] { job.node(3).fail(2, {FailureNews::Kind::kEnds, -1, 1, "ImportError: no module"}); });
  job.at(4s, [&] {
    CHECK(job.count("failing: ") == 0);
    job.node(3).exit(2, exited(1));
  });
  job.at(5s, [&] {
    CHECK(job.count("note: rank 2 on node3") == 1);
    CHECK(job.last(1).kind == Kind::kStart);
    CHECK_FALSE(job.last(1).is_growing);
    job.node(1).exit(0, exited(5));  // no more ranks may be started again
  });
  CHECK(job.run() == 5);
  CHECK(job.told("cause: ").starts_with("rank 0 on node1"));
}

TEST_CASE("a rank that fails when its host is given back, and tells of it, has no blame for what fails later") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.spec.restart_limit = 1;
  job.at(2s, [&] { job.node(3).say(AgentMessage::kLeaving, "it got SIGTERM"); });
  job.at(3s, [&] {
    for (const int number : {1, 2, 3}) {
      job.node(number).join(number - 1, 0, true);
    }
  });
  job.at(4s, [&] {
    CHECK(job.last(3).released == std::vector<std::int32_t>{2});
    job.node(3).fail(2, {FailureNews::Kind::kEnds, -1, 1, "OSError: a writer is gone"});
    job.node(3).exit(2, exited(1));
  });
  job.at(5s, [&] {
    CHECK(job.count("failing: ") == 0);
    job.node(1).exit(0, exited(5));
  });
  job.at(6s, [&] {
    CHECK(job.told("restarted: ") == "0");
    job.node(2).exit(1, exited(6));
  });
  CHECK(job.run() == 6);
  CHECK(job.told("cause: ").starts_with("rank 1 on node2"));
}

TEST_CASE("ranks that still wait to be taken in are ended when the others have ended") {
  Elastic job("node1:1,node2:1", 1);
  job.at(2s, [&] { job.node(2).exit(1, killed(SIGKILL)); });
  job.at(3s, [&] { job.node(2).join(1, 1, true); });  // the other is asked to leave, and has trained enough
  job.at(4s, [&] {
    CHECK(job.last(1).kind == Kind::kChanged);
    job.node(1).exit(0, exited(0));
  });
  CHECK(job.run() == 0);
  CHECK(job.node(2).stop().signal == SIGTERM);
}

TEST_CASE("an elastic job that has fewer ranks than it needs ends with the cause of that") {
  Elastic job("node1:1,node2:1,node3:1", 3);
  job.at(2s, [&] { job.node(2).cut(kGone.code(), kGone.message()); });
  CHECK(job.run() == exit_code::kNodeLost);
}

TEST_CASE("a host on which a rank fails is done without as a whole, if the job is to") {
  Elastic job("node1:2,node2:2", 2);
  job.spec.excludes_failed_hosts = true;
  job.at(2s, [&] { job.node(1).exit(0, exited(1)); });
  job.at(3s, [&] {
    CHECK(job.count("restarted: ") == 0);
    CHECK(job.told("note: ").find("the others go on without it") != std::string::npos);
    CHECK(job.last(2).kind == Kind::kFormed);
    REQUIRE(job.last(2).members.size() == 2);
    CHECK(job.last(2).members.front().place.rank == 0);
    CHECK(job.last(2).members.front().place.size == 2);
    CHECK(job.node(1).stop().signal == SIGTERM);
    job.node(1).exit(1, killed(SIGTERM));
    job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("when ranks fail on all hosts, and these are done without, the first failure is the job's") {
  Elastic job("node1:2,node2:2", 2);
  job.spec.excludes_failed_hosts = true;
  job.at(2s, [&] { job.node(1).exit(0, exited(3)); });
  job.at(3s, [&] { job.node(2).exit(2, exited(4)); });
  CHECK(job.run() != 0);
  CHECK(job.node(2).stop().signal == SIGTERM);
}

TEST_CASE("a job whose ranks have changed as often as they may ends with the next change") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.spec.reset_limit = 1;
  job.at(2s, [&] { job.node(3).cut(kGone.code(), kGone.message()); });
  job.at(3s, [&] {
    CHECK(job.last(1).number == 1);
    job.node(2).cut(kGone.code(), kGone.message());
  });
  CHECK(job.run() == exit_code::kResetLimit);
  CHECK(job.told("cause: ").find("number of resets during elastic job exceeded limit: 1") != std::string::npos);
}

TEST_CASE("an elastic job does not wait for a node that falls silent, if the others are heard and are enough") {
  Elastic job("node1:1,node2:1,node3:1", 2);
  job.spec.reconnect_timeout = 60s;
  job.spec.heartbeat = 1s;
  job.at(2s, [&] { job.node(3).fall_silent(); });
  job.at(7s, [&] {
    CHECK(job.count("lost: node3") == 1);
    CHECK(job.last(2).members.front().place.size == 2);
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a host that joins and cannot start its ranks is done without as a whole, and tried again later") {
  ToldHosts hosts;  // lives longer than the job
  Elastic job("node1:1,node2:1", 1);
  job.host_source = &hosts;
  job.spec.discovery.script = "hosts.sh";
  job.node(3).start_failure = StartFailedMessage{2, Error(Code::kInvalid, "there is no folder /home/me"), "/home/me"};
  job.at(2s, [&] { hosts.tell("node1:1,node2:1,node3:3"); });
  job.at(4s, [&] {
    CHECK(job.count("note: cannot start rank 2 on node3: there is no folder /home/me") == 1);
    CHECK(job.node(3).count(AgentMessage::kStop) == 1);  // nobody would end its agent later
    CHECK(job.node(3).count(AgentMessage::kBye) == 1);
    job.node(3).start_failure.reset();
  });
  job.at(14s, [&] {
    CHECK(job.node(3).attempts == 2);
    CHECK(job.node(3).ranks.size() == 3);
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0)), job.node(3).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
  for (const int rank : {2, 3, 4}) {
    CHECK(job.news.ranks[static_cast<std::size_t>(rank)].state == RankRecord::State::kLost);
  }
}

TEST_CASE("ranks meet again where one of them could not connect to the others for a moment") {
  Elastic job("node1:1,node2:1,node3:1", 1);
  job.spec.reset_limit = 1;  // it does not count
  job.at(1500ms, [&] {
    for (const int number : {1, 2, 3}) {
      job.node(number).exchange(number - 1, kMetKey, "");
    }
  });
  job.at(2s, [&] { job.node(2).cut(kGone.code(), kGone.message()); });
  job.at(3s, [&] { job.node(3).join(2, 1, true); });  // its network was gone too, and is back
  job.at(30s, [&] { CHECK(job.last(1).number == 1); });
  job.at(45s, [&] {
    CHECK(job.count("note: rank 2 on node3 could not connect to all other ranks; all meet again") == 1);
    CHECK(job.last(1).kind == Kind::kFormed);
    CHECK(job.last(1).number == 2);
    CHECK(job.last(1).members.front().place.size == 2);
    CHECK_FALSE(job.last(1).cause.empty());
    job.node(1).exit_all(exited(0)), job.node(3).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a host that joins and has none of the networks that ranks are to use is done without") {
  ToldHosts hosts;  // lives longer than the job
  Elastic job("node1:1,node2:1", 1);
  job.host_source = &hosts;
  job.spec.discovery.script = "hosts.sh";
  job.spec.interfaces = {"eth0"};
  job.node(3).ready.networks = {{"eth1", "10.0.1.3/24"}};
  job.at(2s, [&] { hosts.tell("node1:1,node2:1,node3:1"); });
  job.at(4s, [&] {
    CHECK(job.count("note: cannot start rank 2 on node3: ") == 1);
    CHECK(job.told("note: ").find("eth0") != std::string::npos);
    CHECK(job.node(3).ranks.empty());
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a host that has come and cannot meet the others is done without, and they go on") {
  ToldHosts hosts;  // lives longer than the job
  Elastic job("node1:1,node2:1", 1);
  job.host_source = &hosts;
  job.spec.discovery.script = "hosts.sh";
  job.at(2s, [&] { hosts.tell("node1:1,node2:1,node3:1"); });
  job.at(4s, [&] { job.node(3).join(2, 0, true); });
  job.at(5s, [&] { job.node(1).join(0, 0, true), job.node(2).join(1, 0, true); });
  job.at(6s, [&] {
    CHECK(job.last(3).members.size() == 1);
    job.node(3).join(2, 1, true);  // a firewall has ended its calls
  });
  job.at(30s, [&] { CHECK(job.last(1).number == 1); });
  job.at(45s, [&] {
    CHECK(job.told("note: ").find("node3 has come with 1 rank, but cannot connect to the other hosts") == 0);
    CHECK(job.last(1).kind == Kind::kFormed);
    CHECK(job.last(1).number == 2);
    CHECK(job.last(1).members.front().place.size == 2);
    CHECK(job.node(3).ranks.empty());
    CHECK(job.node(3).count(AgentMessage::kBye) == 1);
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a rank of a host that joins may tell of its failure before it joins the others, and is done without") {
  ToldHosts hosts;  // lives longer than the job
  Elastic job("node1:1,node2:1", 1);
  job.host_source = &hosts;
  job.spec.discovery.script = "hosts.sh";
  job.at(2s, [&] { hosts.tell("node1:1,node2:1,node3:1"); });
  job.at(4s, [&] { job.node(3).fail(2, {FailureNews::Kind::kEnds, -1, 1, "ImportError: no module"}); });
  job.at(5s, [&] {
    CHECK(job.count("failing: ") == 0);
    job.node(3).exit(2, exited(1));
  });
  job.at(7s, [&] {
    CHECK(job.count("note: rank 2 on node3") == 1);
    CHECK(job.node(3).attempts == 1);  // its host is left alone for a time
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
  CHECK(job.count("cause: ") == 0);
}

TEST_CASE("a host that fell silent gets new ranks only when its agent must have ended the old ones") {
  ToldHosts hosts;  // lives longer than the job
  Elastic job("node1:1,node2:1", 1);
  job.host_source = &hosts;
  job.spec.discovery.script = "hosts.sh";
  job.spec.reconnect_timeout = 60s;
  job.spec.heartbeat = 1s;
  job.spec.grace = 5s;
  job.at(1500ms, [&] { hosts.tell("node1:1,node2:1"); });
  job.at(2s, [&] { job.node(2).fall_silent(); });
  job.at(60s, [&] { CHECK(job.node(2).attempts == 1); });
  job.at(90s, [&] {
    CHECK(job.node(2).attempts == 2);
    job.node(1).exit_all(exited(0)), job.node(2).exit_all(exited(0));
  });
  CHECK(job.run() == 0);
}

TEST_CASE("a start of a job that starts anew tells for how long ranks of a silent host may live on") {
  for (const bool is_given_up : {true, false}) {
    CAPTURE(is_given_up);
    JobScenario job("node1:2,node2:2");
    job.spec.hosts = parse_host_list("node1:2,node2:2").value();
    job.spec.fresh.limit = 1;
    job.spec.least_ranks = is_given_up ? 2 : 4;
    job.spec.reconnect_timeout = 60s;
    job.spec.heartbeat = 1s;
    job.spec.grace = 5s;
    job.at(2s, [&] { job.node(2).fall_silent(), job.node(2).is_silent = true; });
    job.at(8s, [&] { job.node(1).exit_all(exited(3)); });  // for lack of the others
    CHECK(job.run() == (is_given_up ? exit_code::kNodeLost : 3));
    CHECK(job.count("lost: node2") == (is_given_up ? 1 : 0));
    REQUIRE(job.news.ranks_may_stay.size() == 2);
    CHECK(job.news.ranks_may_stay[0] == 0s);
    // Three heartbeats, the time to return, some slack and grace, from the last sign of life.
    const Duration over = job.time.passed() + job.news.ranks_may_stay[1];
    CHECK(over > 1s + 3s + 60s + 5s + 5s - 1s);
    CHECK(over < 2s + 3s + 60s + 5s + 5s + 1s);
  }
}

TEST_CASE("a host that loses its own network gives up none of its nodes") {
  Elastic job("node1:1,node2:1,node3:1", 2);
  job.spec.reconnect_timeout = 60s;
  job.spec.heartbeat = 1s;
  job.at(2s, [&] {
    for (const int number : {1, 2, 3}) {
      job.node(number).fall_silent();
    }
  });
  job.at(12s, [&] {
    CHECK(job.count("away: ") == 3);
    CHECK(job.count("lost: ") == 0);
    job.runner->on_signal(SIGINT), job.runner->on_signal(SIGINT), job.runner->on_signal(SIGINT);
  });
  CHECK(job.run() == 130);
}

}  // namespace hvd::launch::job_runner_elastic_test
