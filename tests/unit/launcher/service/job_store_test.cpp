#include "launcher/service/job_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "launcher/service/supervisor.h"
#include "launcher/service/ticket.h"
#include "launcher/state/exit_codes.h"
#include "tests/unit/launcher/folder.h"
#include "tests/unit/launcher/service/records.h"

namespace hvd::launch::job_store_test {
namespace {

using hvd::test::Folder;
using hvd::test::kSomebody;
using hvd::test::Records;
using S = ClusterNodeState;

}  // namespace

TEST_CASE("the first commands of a user may come at the same time") {
  for (int round = 0; round < 20; ++round) {
    const Folder folder;
    const StateDir dir = StateDir::open(folder.path + "/state/hvdrun").value();
    std::vector<std::string> failures(4);
    std::vector<std::thread> commands;
    for (std::string& failure : failures) {
      commands.emplace_back([&dir, &failure] {
        const auto store = JobStore::open(dir, [] { return std::int64_t{0}; });
        failure = store.ok() ? "" : store.error().message();
      });
    }
    for (std::thread& command : commands) {
      command.join();
    }
    for (const std::string& failure : failures) {
      CHECK(failure == "");
    }
  }
}

TEST_CASE("a job gets its nodes when all of them are idle, and gives them back with its end") {
  Records records;
  records.add_cluster("a,b,c");
  const auto first = records.add("first", 2);
  const auto second = records.add("second", 2);
  const auto third = records.add("third", 1);
  CHECK(!records.store.claim(second.id, kSomebody).value().has_value());  // it is not its turn
  const auto claimed = records.store.claim(first.id, kSomebody).value();
  REQUIRE(claimed.has_value());
  CHECK(claimed->nodes.size() == 2);
  CHECK(claimed->nodes[1].name == "b");
  CHECK(!records.store.claim(first.id, kSomebody).value().has_value());  // nor twice
  CHECK(!records.store.claim(third.id, kSomebody).value().has_value());  // nor before the second
  CHECK(records.states() == std::vector<S>{S::kPreparing, S::kPreparing, S::kIdle});
  REQUIRE(records.store.set_phase(first.id, Phase::kStarted).ok());
  CHECK(records.states() == std::vector<S>{S::kRunning, S::kRunning, S::kIdle});
  records.now += 5000;
  REQUIRE(records.store.end(first.id, {ExecutionState::kSucceeded, 0, 0, {}}).ok());
  CHECK(records.states() == std::vector<S>(3, S::kIdle));
  const auto ended = records.store.job("first").value();
  CHECK((ended.state == ExecutionState::kSucceeded && ended.ended_ms == ended.started_ms + 5000));
  CHECK(records.store.claim(second.id, kSomebody).value().has_value());
  CHECK(records.store.claim(third.id, kSomebody).value().has_value());
  CHECK(records.store.remove_job(second.id).error().message().find("has not ended") != std::string::npos);
  CHECK(records.store.remove_job(first.id).ok());
  CHECK(records.store.job("first").error().code() == hvd::Code::kNotFound);
}

TEST_CASE("of two processes that look at the same records one gets the nodes") {
  Records records;
  records.add_cluster("a");
  const auto job = records.add("job");
  JobStore other = records.open();
  const bool mine = records.store.claim(job.id, kSomebody).value().has_value();
  const bool theirs = other.claim(job.id, kSomebody).value().has_value();
  CHECK(mine);
  CHECK(!theirs);
  CHECK(other.job(job.id).value().attempts == 1);
}

TEST_CASE("what the death of a supervisor means depends on how far its job was") {
  Records records;
  records.add_cluster("a");
  const auto id = records.add("job").id;
  const auto claim = [&] { REQUIRE(records.store.claim(id, kSomebody).value().has_value()); };
  REQUIRE(records.store.bury(id, "boot").ok());
  CHECK(records.store.job(id).value().state == ExecutionState::kQueued);

  claim();
  REQUIRE(records.store.set_leaving_time(id, 9000, true).ok());
  REQUIRE(records.store.bury(id, "boot").ok());
  CHECK(records.states() == std::vector<S>{S::kIdle});  // nothing was done there
  CHECK(records.store.job(id).value().state == ExecutionState::kQueued);

  claim();
  REQUIRE(records.store.set_phase(id, Phase::kPreparing).ok());
  REQUIRE(records.store.bury(id, "boot").ok());
  CHECK(records.states() == std::vector<S>{S::kLeaving});
  CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == records.now + 9000);
  CHECK(!records.store.claim(id, kSomebody).value().has_value());
  records.now += 9000;
  CHECK(records.states() == std::vector<S>{S::kIdle});
  CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == 0);

  claim();
  REQUIRE(records.store.set_phase(id, Phase::kStarted).ok());
  REQUIRE(records.store.bury(id, "boot").ok());
  REQUIRE(records.store.bury(id, "boot").ok());  // a second one finds nothing to do
  const auto dead = records.store.job(id).value();
  CHECK((dead.state == ExecutionState::kFailed && dead.error.code == "SupervisorLost"));
  CHECK((dead.status == exit_code::kSupervisorLost && !dead.exit_code.has_value()));
  CHECK(records.states() == std::vector<S>{S::kLeaving});
}

TEST_CASE("after a restart of the machine nothing is left on it, and on others for as long as they need") {
  Records records;
  records.add_cluster("a,b");
  for (const bool is_local : {true, false}) {
    const auto id = records.add(is_local ? "local" : "far").id;
    REQUIRE(records.store.claim(id, kSomebody).value().has_value());
    REQUIRE(records.store.set_leaving_time(id, 9000, is_local).ok());
    REQUIRE(records.store.set_phase(id, Phase::kStarted).ok());
    REQUIRE(records.store.bury(id, "another boot").ok());
    CHECK(records.store.job(id).value().error.message.starts_with("The machine restarted"));
  }
  CHECK(records.states() == std::vector<S>{S::kLeaving, S::kIdle});
}

TEST_CASE("a supervisor that dies each time before it starts anything does not do so for ever") {
  Records records;
  records.add_cluster("a");
  const auto id = records.add("job").id;
  int attempts = 0;
  while (records.store.claim(id, kSomebody).value().has_value()) {
    REQUIRE(++attempts < 100);
    REQUIRE(records.store.bury(id, "boot").ok());
  }
  CHECK(records.store.job(id).value().state == ExecutionState::kFailed);
  CHECK(attempts == 20);
}

TEST_CASE("a stop ends a job that waits, and tells of one that runs") {
  Records records;
  records.add_cluster("a");
  const auto running = records.add("running").id;
  const auto waiting = records.add("waiting").id;
  REQUIRE(records.store.claim(running, kSomebody).value().has_value());
  CHECK(records.store.request_stop(waiting).value() == StopOutcome::kEnded);
  CHECK(records.store.request_stop(waiting).value() == StopOutcome::kHadEnded);
  CHECK(records.store.request_stop(running).value() == StopOutcome::kTerminating);
  CHECK(records.store.request_stop(running).value() == StopOutcome::kTerminating);
  CHECK(records.store.job(running).value().state == ExecutionState::kTerminating);
  REQUIRE(records.store.end(running, {ExecutionState::kSucceeded, 0, 0, {}}).ok());
  for (const auto id : {running, waiting}) {
    const auto job = records.store.job(id).value();
    CHECK((job.state == ExecutionState::kFailed && job.error.code == "JobTerminated" && !job.exit_code));
    CHECK(job.status == 143);
  }
}

TEST_CASE("a drained node is unusable once it is idle") {
  Records records;
  records.add_cluster("a,b");
  const auto id = records.add("job").id;
  REQUIRE(records.store.claim(id, kSomebody).value().has_value());
  REQUIRE(records.store.clusters().set_drained("lab", {}, true).ok());
  CHECK(records.states() == std::vector<S>{S::kPreparing, S::kUnusable});
  REQUIRE(records.store.end(id, {}).ok());
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kUnusable});
  CHECK(!records.store.claim(records.add("next").id, kSomebody).value().has_value());
  REQUIRE(records.store.clusters().set_drained("lab", {"b"}, false).ok());
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kIdle});
  // All or nothing.
  CHECK(!records.store.clusters().set_drained("lab", {"a", "nobody"}, false).ok());
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kIdle});
}

TEST_CASE("a node that is lost at a job's end is idle when the agent there has surely ended") {
  Records records;
  records.add_cluster("a,b");
  const auto id = records.add("job", 2).id;
  REQUIRE(records.store.claim(id, kSomebody).value().has_value());
  REQUIRE(records.store.set_leaving_time(id, 40'000, false).ok());
  REQUIRE(records.store.end(id, {}, {"b"}).ok());
  CHECK(records.states() == std::vector<S>{S::kIdle, S::kLeaving});
  records.now += 40'000;
  CHECK(records.states() == std::vector<S>{S::kIdle, S::kIdle});
}

TEST_CASE("a job that could not reach a node waits again, and others get the nodes that are left") {
  Records records;
  records.add_cluster("a,b");
  const auto pair = records.add("pair", 2);
  const auto single = records.add("single");
  const auto run = [&records](const JobRecord& job) {
    return records.store.claim(job.id, kSomebody).value().has_value();
  };
  const auto put_back = [&records](const JobRecord& job) {
    return records.store.put_back(job.id, {{{"b", "b: no answer"}}, true}).value() == PutBack::kWaits;
  };
  REQUIRE(run(pair));
  REQUIRE(records.store.set_addresses(pair.id, {{"a", "10.0.0.1"}, {"b", "10.0.0.2"}}, true).ok());
  REQUIRE(put_back(pair));
  CHECK(records.store.job(pair.id).value().state == ExecutionState::kQueued);
  CHECK(records.states() == std::vector<S>{S::kIdle, S::kUnusable});
  CHECK(records.store.clusters().find("lab").value().nodes[1].health.why == "b: no answer");
  CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == records.now + kFirstUnusableMs);

  // The pair needs more nodes than are in service, so that it is passed over.
  CHECK_FALSE(run(pair));
  CHECK(run(single));
  REQUIRE(records.store.end(single.id, {ExecutionState::kSucceeded, 0, 0, {}}).ok());

  SUBCASE("until it is tried again, each time later") {
    records.now += kFirstUnusableMs;
    REQUIRE(run(pair));
    REQUIRE(put_back(pair));
    CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == records.now + 2 * kFirstUnusableMs);
  }
  SUBCASE("until the user says that it is back") {
    REQUIRE(records.store.clusters().set_drained("lab", {"b"}, false).ok());
    CHECK(records.states() == std::vector<S>{S::kIdle, S::kIdle});
    REQUIRE(run(pair));
    REQUIRE(put_back(pair));
    CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == records.now + kFirstUnusableMs);
    REQUIRE(records.store.clusters().set_drained("lab", {}, false).ok());
    CHECK(records.states() == std::vector<S>{S::kIdle, S::kIdle});
  }
  SUBCASE("a job that reaches it ends its time, and the next failure counts as the first") {
    records.now += kFirstUnusableMs;
    REQUIRE(run(pair));
    REQUIRE(records.store.set_addresses(pair.id, {{"b", "10.0.0.2"}}, true).ok());
    CHECK(records.store.clusters().find("lab").value().nodes[1].health == after_success());
    REQUIRE(put_back(pair));
    CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == records.now + kFirstUnusableMs);
  }
  SUBCASE("a drained node stays unusable when its time is over") {
    REQUIRE(records.store.clusters().set_drained("lab", {"b"}, true).ok());
    records.now += kFirstUnusableMs;
    CHECK(records.states() == std::vector<S>{S::kIdle, S::kUnusable});
  }
  SUBCASE("after too many attempts it does not wait any more") {
    int attempts = 1;
    do {
      REQUIRE(++attempts < 100);
      records.now += kLongestUnusableMs;
      REQUIRE(run(pair));
    } while (put_back(pair));
    CHECK(attempts == 20);
    CHECK(records.store.job(pair.id).value().state == ExecutionState::kRunning);  // whoever asked ends it
  }
  SUBCASE("a cluster that is removed takes what is known with it") {
    REQUIRE(records.store.request_stop(pair.id).ok());
    REQUIRE(records.store.clusters().remove("lab").ok());
    records.add_cluster("a,b");
    CHECK(records.states() == std::vector<S>{S::kIdle, S::kIdle});
  }
}

TEST_CASE("a job does not wait for a node that no job has ever reached, nor when it was stopped") {
  Records records;
  records.add_cluster("a,typo");
  const auto job = records.add("job", 2);
  REQUIRE(records.store.claim(job.id, kSomebody).value().has_value());
  SUBCASE("a wrong name") {
    CHECK(records.store.put_back(job.id, {{{"typo", "typo: no such host"}}, true}).value() == PutBack::kEnds);
  }
  SUBCASE("a stop") {
    REQUIRE(records.store.set_addresses(job.id, {{"a", "10.0.0.1"}}, true).ok());
    REQUIRE(records.store.request_stop(job.id).ok());
    CHECK(records.store.put_back(job.id, {{{"a", "a: no answer"}}, false}).value() == PutBack::kEnds);
  }
  SUBCASE("no node of the cluster") {
    CHECK(records.store.put_back(job.id, {{{"another", "another: no answer"}}, true}).value() == PutBack::kEnds);
  }
  SUBCASE("nobody") {
    CHECK(records.store.put_back(job.id, {}).value() == PutBack::kEnds);
  }
}

TEST_CASE("a waiting job looks after those that have begun, and after the waiting one behind it") {
  Records records;
  records.add_cluster("a,b");
  std::vector<std::int64_t> ids;
  for (const char* name : {"first", "running", "stopped", "ended", "middle", "last"}) {
    ids.push_back(records.add(name).id);
  }
  REQUIRE(records.store.claim(ids[0], kSomebody).value().has_value());
  REQUIRE(records.store.end(ids[0], {ExecutionState::kSucceeded, 0, 0, {}}).ok());
  REQUIRE(records.store.claim(ids[1], kSomebody).value().has_value());
  REQUIRE(records.store.claim(ids[2], kSomebody).value().has_value());
  REQUIRE(records.store.request_stop(ids[2]).ok());
  REQUIRE(records.store.request_stop(ids[3]).ok());
  const auto after = [&records](std::int64_t id) {
    std::string names;
    const auto found = records.store.neighbours_of(id);
    for (const JobRecord& job : found.value()) {
      names += job.name + " ";
    }
    return names;
  };
  CHECK(after(ids[4]) == "running stopped last ");
  CHECK(after(ids[5]) == "running stopped middle ");
  REQUIRE(records.store.request_stop(ids[4]).ok());
  CHECK(after(ids[5]) == "running stopped ");
}

TEST_CASE("records have another version when this process or another has changed them, and only then") {
  Records records;
  const std::int64_t before = records.store.version().value();
  CHECK(records.store.active_jobs().value().empty());
  CHECK(records.store.version().value() == before);
  records.add_cluster("a");
  const std::int64_t by_itself = records.store.version().value();
  CHECK(by_itself != before);
  JobStore other = records.open();
  CHECK(records.store.version().value() == by_itself);
  const auto job = records.add_elastic("job", 1, 1);  // by a connection of its own
  const std::int64_t by_another = records.store.version().value();
  REQUIRE(other.request_stop(job.id).ok());
  CHECK(records.store.version().value() != by_another);
}

TEST_CASE("hostile texts in records stay texts") {
  Records records;
  records.add_cluster("a");
  for (const std::string text : {"'; DROP TABLE job; --", "\"", "a\nb", "\xff\xfe", "日本語"}) {
    CHECK(records.store.job(text).error().code() == hvd::Code::kNotFound);
    CHECK(!records.store.clusters().find(text).ok());
    CHECK(!records.store.clusters().set_drained("lab", {text}, true).ok());
  }
  auto id = records.add("job").id;
  REQUIRE(records.store.set_output(id, "/x/'\n\"", {"a'b", "\xff"}).ok());
  CHECK(records.store.job(id).value().output == "/x/'\n\"");
  CHECK(!record_json(records.store.job(id).value()).empty());
}

TEST_CASE("what a submit has left that died is removed, and what another holds is not") {
  Records records;
  records.add_cluster("a");
  const std::string dead = "dead-0000";
  const std::string busy = "busy-0000";
  for (const std::string& uuid : {dead, busy}) {
    REQUIRE(write_ticket(records.dir.ticket_of(uuid), {}).ok());
  }
  const auto lock = take_lock(records.dir.lock_of(busy));
  REQUIRE(recover(records.dir, records.store).ok());
  CHECK(!std::filesystem::exists(records.dir.ticket_of(dead)));
  CHECK(std::filesystem::exists(records.dir.ticket_of(busy)));
  CHECK(is_locked(records.dir.lock_of(busy)));
}

TEST_CASE("a clock that is set back does not keep a node from all jobs") {
  Records records;
  records.add_cluster("a");
  const auto first = records.add("first");
  const auto second = records.add("second");
  REQUIRE(records.store.claim(first.id, kSomebody).value().has_value());
  REQUIRE(records.store.set_phase(first.id, Phase::kStarted).ok());
  REQUIRE(records.store.set_leaving_time(first.id, 76'000, false).ok());
  REQUIRE(records.store.bury(first.id, "boot").ok());
  CHECK(records.states() == std::vector<S>{S::kLeaving});
  CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == records.now + 76'000);
  CHECK(!records.store.claim(second.id, kSomebody).value().has_value());
  records.now = 1000;  // a machine whose clock has lost its battery
  CHECK(records.states() == std::vector<S>{S::kIdle});
  CHECK(records.store.clusters().next_idle_ms("lab", 0).value() == 0);
  CHECK(records.store.claim(second.id, kSomebody).value().has_value());
}

TEST_CASE("jobs of one name get numbers, also after many of them") {
  Records records;
  records.add_cluster("a");
  std::set<std::string> names;
  JobRecord job = records.add("same");
  constexpr int kJobs = 250;
  for (int i = 0; i < kJobs; ++i) {
    job.uuid = "uuid-" + std::to_string(i);
    job.name = "same";
    const auto added = records.store.add_job(job, false);
    REQUIRE(added.ok());
    names.insert(added.value().name);
  }
  CHECK(names.size() == kJobs);
  CHECK(names.contains("same-2"));
  CHECK(records.store.is_active("uuid-7").value());
  CHECK(!records.store.is_active("another").value());
}

TEST_CASE("an elastic job that runs gets the nodes that become idle, and gives a drained one back") {
  Records records;
  records.add_cluster("a,b,c");
  const auto other = records.add("other", 2);
  const auto job = records.add_elastic("job", 1, 3);
  REQUIRE(records.store.claim(other.id, kSomebody).value().has_value());
  REQUIRE(records.store.claim(job.id, kSomebody).value().has_value());
  CHECK(records.nodes_of(job) == std::vector<std::string>{"c"});
  CHECK(!records.store.is_turn(job.id).value());
  REQUIRE(records.store.end(other.id, {ExecutionState::kSucceeded, 0, 0, {}}).ok());
  CHECK(records.store.is_turn(job.id).value());
  REQUIRE(records.store.grow(job.id).ok());
  REQUIRE(records.store.grow(job.id).ok());
  CHECK(records.nodes_of(job) == std::vector<std::string>{"c", "a", "b"});
  REQUIRE(records.store.set_addresses(job.id, {{"a", "10.0.0.1"}, {"c", ""}, {"z", "10.0.0.9"}}, true).ok());
  CHECK(records.store.job(job.id).value().nodes[1].address == "10.0.0.1");
  REQUIRE(records.store.give_back(job.id, "a", false).ok());  // it is not drained
  CHECK(records.nodes_of(job).size() == 3);
  REQUIRE(records.store.clusters().set_drained("lab", {"a", "b"}, true).ok());
  REQUIRE(records.store.set_leaving_time(job.id, 5000, false).ok());
  REQUIRE(records.store.give_back(job.id, "a", false).ok());
  REQUIRE(records.store.give_back(job.id, "b", true).ok());
  CHECK(records.nodes_of(job) == std::vector<std::string>{"c"});
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kLeaving, S::kPreparing});
  REQUIRE(records.store.clusters().set_drained("lab", {}, false).ok());
  REQUIRE(records.store.grow(job.id).ok());
  CHECK(records.nodes_of(job) == std::vector<std::string>{"c", "a"});
  REQUIRE(records.store.request_stop(job.id).ok());
  records.now += 6000;
  REQUIRE(records.store.grow(job.id).ok());  // it is ending
  CHECK(records.nodes_of(job).size() == 2);
  REQUIRE(records.store.bury(job.id, "boot").ok());
  CHECK(records.states() == std::vector<S>(3, S::kIdle));
}

TEST_CASE("records of schema 1 are taken over") {
  Records records;
  records.add_cluster("a");
  const auto job = records.add("job");
  {
    Database database = Database::open(records.dir.database()).value();
    REQUIRE(database
                .run("ALTER TABLE job DROP COLUMN min_nodes; ALTER TABLE job DROP COLUMN max_nodes;"
                     "PRAGMA user_version = 1;")
                .ok());
  }
  JobStore again = records.open();
  CHECK(again.job(job.id).value().max_nodes == 0);
  CHECK(again.is_turn(job.id).value());
}

}  // namespace hvd::launch::job_store_test
