#include "launcher/service/loop_writes.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/offers/host_source.h"
#include "launcher/service/database.h"
#include "launcher/service/granted_nodes.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::loop_writes_test {
namespace {

using namespace std::chrono_literals;
using hvd::test::Folder;

// A running job that may have two nodes and has one, and another process that may hold the records.
struct Job {
  Job() {
    Cluster cluster;
    cluster.name = "lab";
    cluster.hosts = {{"a", "", 0, 1}, {"b", "", 0, 1}};
    REQUIRE(store.clusters().add(cluster).ok());
    JobRecord job;
    job.uuid = "uuid";
    job.name = "job";
    job.cluster = "lab";
    job.node_count = 1;
    job.process_count = 1;
    id = store.add_job(job, true).value().id;
    REQUIRE(store.claim(id, {1, 2, "boot"}).value());
    REQUIRE(other.change("UPDATE job SET min_nodes = 1, max_nodes = 2 WHERE id = ?", {id}).ok());
  }

  void hold() { REQUIRE(other.run("BEGIN IMMEDIATE").ok()); }
  void let_go() { REQUIRE(other.run("COMMIT").ok()); }
  std::string address() { return store.job(id).value().nodes.front().address; }

  Folder folder;
  const StateDir dir = StateDir::open(folder.path + "/state/hvdrun").value();
  JobStore store = JobStore::open(dir, [] { return std::int64_t{1'500'000'000'000}; }).value();
  Database other = Database::open(dir.database()).value();
  const std::optional<Fd> alive = take_lock(dir.lock_of("uuid")).value();  // its supervisor's
  std::int64_t id = 0;
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
};

// The store's usual patience is ten times this.
constexpr auto kAtOnce = Database::kPatience / 10;

}  // namespace

TEST_CASE("a loop that cannot write to the record goes on, and writes later") {
  Job job;
  LoopWrites writes(job.store, job.id);
  writes.begin();
  writes.retry_on(*job.loop);
  job.hold();
  const auto began = std::chrono::steady_clock::now();
  writes.set_addresses({{"a", "10.0.0.1"}}, true);
  writes.set_output("/out", {"/out/0", "/out/1"});
  CHECK(std::chrono::steady_clock::now() - began < kAtOnce);
  CHECK(job.store.job(job.id).value().output.empty());
  job.let_go();
  const Deadline deadline = Deadline::after(1min);
  while (job.address().empty() && !deadline.has_passed()) {
    REQUIRE(job.loop->turn(deadline).ok());
  }
  CHECK(job.address() == "10.0.0.1");
  CHECK(job.store.job(job.id).value().rank_files == std::vector<std::string>{"/out/0", "/out/1"});
}

TEST_CASE("what a loop could not write is written at its end") {
  Job job;
  LoopWrites writes(job.store, job.id);
  writes.begin();
  job.hold();
  writes.set_addresses({{"a", "10.0.0.1"}}, true);
  job.let_go();
  CHECK(job.address().empty());
  CHECK(writes.end().ok());
  CHECK(job.address() == "10.0.0.1");
}

TEST_CASE("a job that may get nodes while another process holds the records goes on, and says nothing of it") {
  Job job;
  LoopWrites writes(job.store, job.id);
  writes.begin();
  GrantedNodes nodes(*job.loop, job.dir, job.store, job.id, {{"a", "", 0, 1}, {"b", "", 0, 1}}, {{"a", "", 0, 1}});
  std::size_t count = 0;
  std::string trouble;
  HostSource::Handlers handlers;
  handlers.on_hosts = [&count](const HostList& hosts) { count = hosts.size(); };
  handlers.on_trouble = [&trouble](const std::string& why) { trouble = why; };
  job.hold();
  const auto began = std::chrono::steady_clock::now();
  nodes.start(std::move(handlers));
  REQUIRE(job.loop->turn(Deadline::after(1min)).ok());
  CHECK(std::chrono::steady_clock::now() - began < kAtOnce);
  CHECK(count == 0);
  job.let_go();
  const Deadline deadline = Deadline::after(1min);
  while (count == 0 && !deadline.has_passed()) {
    REQUIRE(job.loop->turn(deadline).ok());
  }
  CHECK(count == 2);
  CHECK(trouble.empty());
  nodes.stop();
}

}  // namespace hvd::launch::loop_writes_test
