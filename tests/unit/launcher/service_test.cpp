#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/job/host_list.h"
#include "launcher/report/listing.h"
#include "launcher/run/exit_codes.h"
#include "launcher/service/cluster.h"
#include "launcher/service/file_follower.h"
#include "launcher/service/job_record.h"
#include "launcher/service/scheduler.h"
#include "launcher/service/state_dir.h"
#include "launcher/service/store.h"
#include "launcher/service/supervisor.h"
#include "launcher/service/ticket.h"

namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace)

struct Folder {
  Folder() {
    std::string name = "/tmp/hvd-service-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

std::vector<ScheduledNode> idle_nodes(int count) {
  return std::vector<ScheduledNode>(static_cast<std::size_t>(count), ScheduledNode{true, true});
}

// A store whose clock stands where the test puts it.
struct Records {
  Records() : dir(StateDir::open(folder.path + "/state/hvdrun").value()), store(open()) {}

  Store open() {
    return Store::open(dir, [this] { return now; }).value();
  }

  JobRecord add(const std::string& name, int nodes = 1, int priority = 0) {
    JobRecord job;
    job.uuid = name + "-uuid";
    job.name = name;
    job.cluster = "lab";
    job.experiment = "default";
    job.tool = "horovod";
    job.node_count = nodes;
    job.process_count = nodes;
    job.priority = priority;
    job.priority_word = "normal";
    job.segment = "a/jobs/" + name + "/b";
    job.properties = "{}";
    auto added = store.add_job(job, true);
    REQUIRE_MESSAGE(added.ok(), added.error().message());
    return added.value();
  }

  void add_cluster(const std::string& hosts, const std::string& name = "lab") {
    Cluster cluster;
    cluster.name = name;
    cluster.hosts = parse_host_list(hosts).value();
    const auto added = store.add_cluster(cluster);
    REQUIRE_MESSAGE(added.ok(), added.error().message());
  }

  std::vector<NodeState> states() {
    std::vector<NodeState> all;
    const ClusterRecord cluster = store.cluster("lab").value();
    for (const NodeRecord& node : cluster.nodes) {
      all.push_back(node.state);
    }
    return all;
  }

  Folder folder;
  std::int64_t now = 1'500'000'000'000;
  StateDir dir;
  Store store;
};

const Claimant kSomebody{1, 2, "boot"};
using S = NodeState;

}  // namespace

TEST_CASE("jobs start by priority, then in the order in which they came") {
  const std::vector<WaitingJob> jobs = {{1, 1, 0}, {2, 1, 5}, {3, 1, 0}, {4, 1, -5}};
  CHECK(plan_starts(jobs, idle_nodes(2)) == std::vector<Start>{{2, {0}}, {1, {1}}});
  CHECK(plan_starts(jobs, idle_nodes(9)) == std::vector<Start>{{2, {0}}, {1, {1}}, {3, {2}}, {4, {3}}});
  CHECK(plan_starts(jobs, {}).empty());
}

TEST_CASE("a job that waits for many nodes is not overtaken, one that can never have them is passed over") {
  auto nodes = idle_nodes(4);
  nodes[0].is_idle = false;
  CHECK(plan_starts({{1, 4, 0}, {2, 1, 0}}, nodes).empty());
  CHECK(plan_starts({{1, 5, 0}, {2, 1, 0}}, nodes) == std::vector<Start>{{2, {1}}});
  nodes[0].is_in_service = false;
  CHECK(plan_starts({{1, 4, 0}, {2, 3, 0}}, nodes) == std::vector<Start>{{2, {1, 2, 3}}});
  nodes[1].is_in_service = false;
  CHECK(plan_starts({{1, 3, 0}, {2, 2, 0}}, nodes) == std::vector<Start>{{2, {2, 3}}});
  CHECK(plan_starts({{1, 0, 0}, {2, -1, 0}}, nodes).empty());
}

TEST_CASE("no plan gives a node twice, and none gives one that is not idle") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<ScheduledNode> nodes;
    for (auto i = random() % 8; i > 0; --i) {
      nodes.push_back({random() % 3 != 0, random() % 5 != 0});
    }
    std::vector<WaitingJob> jobs;
    for (auto i = random() % 6; i > 0; --i) {
      jobs.push_back({static_cast<std::int64_t>(i), static_cast<int>(random() % 5), static_cast<int>(random() % 3)});
    }
    std::vector<int> given(nodes.size());
    for (const Start& start : plan_starts(jobs, nodes)) {
      const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const WaitingJob& j) { return j.id == start.id; });
      REQUIRE(job != jobs.end());
      CHECK(static_cast<int>(start.nodes.size()) == job->node_count);
      for (const int node : start.nodes) {
        const auto at = static_cast<std::size_t>(node);
        CHECK((nodes.at(at).is_idle && nodes.at(at).is_in_service));
        CHECK(++given.at(at) == 1);
      }
    }
  }
}

TEST_CASE("priorities are words or the numbers of 2017") {
  CHECK(priority_of("low") < priority_of("normal"));
  CHECK(priority_of("normal") < priority_of("high"));
  CHECK(priority_of("-17") == -17);
  CHECK(priority_of("999999999999") == 0);
  CHECK(priority_of("5000") == 1000);
}

TEST_CASE("a cluster's file is read, and what is written of it is read back") {
  const auto loaded = parse_cluster(
      "hosts: ['node[1-2]:4', 'me@[fe80::1]:2222:2@0,3']\nsize: NC6\nmounts: {data: /data/, a/b: /x}\nmountRoot: /m\n"
      "env: {A: 1, B: 'x y'}\ndefaults: {container: none, rsh: 'ssh {host}', sshPort: 22, grace: 0.5, startTimeout: "
      "7}\n",
      "c.yaml", "lab");
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  const Cluster& cluster = loaded.value().cluster;
  CHECK(loaded.value().notices.empty());
  REQUIRE(cluster.hosts.size() == 3);
  CHECK(host_entry(cluster.hosts[0]) == "node1:4");
  CHECK(host_entry(cluster.hosts[2]) == "me@[fe80::1]:2222:2@0,3");
  CHECK(cluster.mounts == decltype(cluster.mounts){{"data", "/data"}, {"a/b", "/x"}});
  CHECK(cluster.env == decltype(cluster.env){{"A", "1"}, {"B", "x y"}});
  CHECK(cluster.defaults.grace_s == 0.5);
  CHECK(parse_cluster(cluster_text(cluster), "c.json", "lab").value().cluster == cluster);
}

TEST_CASE(
    "the file systems of a cluster's file are read, and what is written of them is read back without a password") {
  const auto loaded = parse_cluster(
      "hosts: a\n"
      "fileSystems:\n"
      "  - {name: nfs, type: NFS, source: 's:/e', options: 'vers=4.1'}\n"
      "  - {name: a/b, type: cifs, source: //s/x, account: me, passwordVariable: KEY, localDirectory: /srv/x/}\n",
      "c.yaml", "lab");
  REQUIRE(loaded.ok());
  Cluster cluster = loaded.value().cluster;
  REQUIRE(cluster.file_systems.size() == 2);
  CHECK(cluster.file_systems[0].type == "nfs");
  CHECK(!cluster.file_systems[0].needs_password());
  CHECK(cluster.file_systems[1].needs_password());
  CHECK(cluster.file_systems[1].here == "/srv/x");
  CHECK(parse_cluster(cluster_text(cluster), "c.json", "lab").value().cluster == cluster);
  cluster.file_systems[1].password = "secret";
  CHECK(cluster_text(cluster).find("secret") == std::string::npos);
  CHECK(!parse_cluster("hosts: a\nmounts: {x: /x}\nfileSystems: [{name: x, type: bind, source: /y}]", "c", "lab").ok());
  CHECK(
      !parse_cluster("hosts: a\nfileSystems: [{name: x, type: bind, source: /y}, {name: x/z, type: bind, source: /y}]",
                     "c", "lab")
           .ok());
}

TEST_CASE("what is wrong with a cluster's file is told with its place") {
  const auto refusal = [](const std::string& text, const std::string& name = "lab") {
    const auto loaded = parse_cluster(text, "c.yaml", name);
    return loaded.ok() ? "" : loaded.error().message();
  };
  CHECK(refusal("size: x\n").find("'hosts'") != std::string::npos);
  CHECK(refusal("hosts: [a, b, a]\n") ==
        "c.yaml:1:15: the host a is named twice; give it all of its slots in one entry");
  CHECK(refusal("hosts: []\n") == "c.yaml:1:8: a cluster needs a host");
  CHECK(refusal("hosts: [-x]\n").starts_with("c.yaml:1:9: host list, column 1: "));
  CHECK(refusal("hosts: [a]\nmounts: {../x: /data}\n").starts_with("c.yaml:2:10: '../x' cannot be where"));
  CHECK(refusal("hosts: [a]\nmounts: {x: data}\n").starts_with("c.yaml:2:13: mounts: expected the absolute path"));
  CHECK(refusal("hosts: [a]\nmountRoot: \"/a\\nb\"\n").starts_with("c.yaml:2:12: mountRoot: "));
  CHECK(refusal("hosts: [a]\nenv: {A B: 1}\n").starts_with("c.yaml:2:7: 'A B' cannot be the name of a variable"));
  CHECK(refusal("hosts: [a]\ndefaults: {grace: -1}\n").starts_with("c.yaml:2:19: grace: expected seconds"));
  CHECK(refusal("hosts: [a]\ndefaults: {container: rkt}\n").find("c.yaml:2:23: ") == 0);
  CHECK(refusal("[a]\n").starts_with("c.yaml:1:1: "));
  for (const char* name : {"", "../x", "-rf", "a b", "a/b", "x\n", "$(touch x)"}) {
    CHECK(refusal("hosts: [a]\n", name).find("cannot be the name of a cluster") != std::string::npos);
  }
}

TEST_CASE("a ticket is read back, is the user's alone, and a part of one is refused") {
  const Folder folder;
  const Ticket ticket{{"-f", "job.json"}, {"A=1", std::string("B=\xff\0x", 5)}, "/tmp", "job.json", "{}", 027};
  CHECK(decode_ticket(encode(ticket)).value() == ticket);
  const std::string bytes = encode(ticket);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(!decode_ticket(bytes.substr(0, size)).ok());
  }
  CHECK(!decode_ticket(bytes + "x").ok());
  const std::string path = folder.path + "/ticket";
  REQUIRE(write_ticket(path, ticket).ok());
  struct stat info{};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(read_ticket(path).value() == ticket);
  remove_ticket(path);
  CHECK(!read_ticket(path).ok());
  CHECK(write_ticket(folder.path + "/none/ticket", ticket).error().message().find("/none/ticket") != std::string::npos);
}

TEST_CASE("a lock has one holder, is seen without being taken, and is given up with its descriptor") {
  const Folder folder;
  const std::string path = folder.path + "/lock";
  CHECK(!is_locked(path));
  {
    const auto held = take_lock(path);
    REQUIRE(held.value().has_value());
    CHECK(is_locked(path));
    CHECK(!take_lock(path).value().has_value());
    CHECK(!wait_for_lock(path, hvd::Deadline::after(std::chrono::milliseconds(20))).ok());
    const hvd::Fd copy = hvd::duplicate(held.value()->get()).value();
    CHECK(is_locked(path));
  }
  CHECK(!is_locked(path));
  CHECK(take_lock(path).value().has_value());
}

TEST_CASE("who waits for a folder hears of a file that is written and of a lock that is given up") {
  const Folder folder;
  auto watch = FolderWatch::on(folder.path).value();
  CHECK(!watch.wait(std::chrono::milliseconds(1)));
  {
    const auto held = take_lock(folder.path + "/lock");
  }
  CHECK(watch.wait(std::chrono::seconds(60)));
  CHECK(!is_locked(folder.path + "/lock"));
  CHECK(!watch.wait(std::chrono::milliseconds(1)));  // looking wakes nobody
  std::ofstream(folder.path + "/file") << "x";
  CHECK(watch.wait(std::chrono::seconds(60)));
}

TEST_CASE("a process is named by its number and its start") {
  CHECK(start_of_process(::getpid()) > 0);
  CHECK(start_of_process(::getpid()) == start_of_process(::getpid()));
  CHECK(start_of_process(0x7ffffff0) == 0);
  CHECK(boot_id().size() == 36);
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
  Store other = records.open();
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
  CHECK(records.store.next_idle_ms("lab").value() == records.now + 9000);
  CHECK(!records.store.claim(id, kSomebody).value().has_value());
  records.now += 9000;
  CHECK(records.states() == std::vector<S>{S::kIdle});
  CHECK(records.store.next_idle_ms("lab").value() == 0);

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
  REQUIRE(records.store.set_drained("lab", {}, true).ok());
  CHECK(records.states() == std::vector<S>{S::kPreparing, S::kUnusable});
  REQUIRE(records.store.end(id, {}).ok());
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kUnusable});
  CHECK(!records.store.claim(records.add("next").id, kSomebody).value().has_value());
  REQUIRE(records.store.set_drained("lab", {"b"}, false).ok());
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kIdle});
  // All or nothing.
  CHECK(!records.store.set_drained("lab", {"a", "nobody"}, false).ok());
  CHECK(records.states() == std::vector<S>{S::kUnusable, S::kIdle});
}

TEST_CASE("hostile texts in records stay texts") {
  Records records;
  records.add_cluster("a");
  for (const std::string text : {"'; DROP TABLE job; --", "\"", "a\nb", "\xff\xfe", "日本語"}) {
    CHECK(records.store.job(text).error().code() == hvd::Code::kNotFound);
    CHECK(!records.store.cluster(text).ok());
    CHECK(!records.store.set_drained("lab", {text}, true).ok());
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

TEST_CASE("a part of a record is found by its path") {
  const std::string json = R"({"a": {"b": [{"c": 1}, "text"]}, "none": null, "flag": true})";
  CHECK(json_field(json, "a.b.0.c") == "1");
  CHECK(json_field(json, "a.b.1") == "text");
  CHECK(json_field(json, "none") == "");
  CHECK(json_field(json, "flag") == "true");
  for (const char* path : {"", "x", "a.b.2", "a.b.-1", "a.b.c", "a..b", "a.b.0.c.d", "."}) {
    CHECK(!json_field(json, path).has_value());
  }
  CHECK(!json_field("no json", "a").has_value());
}

TEST_CASE("times are in UTC as ISO 8601 has them") {
  CHECK(utc_text(0).empty());
  CHECK(utc_text(1'531'953'688'000) == "2018-07-18T22:41:28+00:00");
}

TEST_CASE("a listing is aligned as az does it") {
  CHECK(listing({{"Name"}, {"Size", true}}, {{"stdout.txt", "2316480"}, {"a", ""}}) ==
        "Name           Size\n----------  -------\nstdout.txt  2316480\na\n");
  CHECK(listing({{"State"}, {"Idle", true}}, {{"steady", "4"}}) ==
        "State      Idle\n-------  ------\nsteady        4\n");
  CHECK(listing({{"Name"}}, {{"a\x1b[31m\nb"}}).find('\x1b') == std::string::npos);
}

TEST_CASE("a follower copies what is added, once, waits for a file, and begins anew with one that was emptied") {
  const Folder folder;
  const std::string path = folder.path + "/file";
  const std::string out_path = folder.path + "/out";
  const hvd::Fd out(::open(out_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto copied = [&] {
    std::ifstream file(out_path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  FileFollower follower(path);
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(!follower.has_found());
  std::ofstream(path) << "one\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\n");
  std::ofstream(path, std::ios::app) << "two\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\ntwo\n");
  std::ofstream(path, std::ios::trunc) << "3\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\ntwo\n3\n");
  CHECK(!FileFollower(folder.path).copy_new(out.get()).ok());
}
