// launcher/process: what a node can tell of a process that was killed, from files as the kernel writes them.
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/post_mortem/core_file.h"
#include "launcher/post_mortem/oom_watch.h"

namespace hvd::launch::post_mortem_test {

using Verdict = OomWatch::Verdict;

namespace {

// A folder with files in it.
struct Files {
  Files() {
    std::string name = "/tmp/hvd-test-XXXXXX";
    path = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~Files() { std::filesystem::remove_all(path); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  void write(const std::string& name, const std::string& text, std::ios::openmode how = std::ios::trunc) const {
    std::filesystem::create_directories(std::filesystem::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name, how) << text;
  }
  std::string path;
};

}  // namespace

TEST_CASE("a process that the kernel's log names was killed by the kernel") {
  const Files files;
  files.write("kmsg", "6,1,1,-;Out of memory: Killed process 41 (python) total-vm:1kB\n");  // before our time
  OomWatch watch({files.path + "/kmsg", {}, true, {}});
  CHECK(watch.look(41).verdict == Verdict::kNothing);
  files.write("kmsg", "3,2,2,-;Memory cgroup out of memory: Killed process 42 (python) total-vm:1kB, UID:0\n",
              std::ios::app);
  const OomWatch::Finding other = watch.look(43);
  CHECK(other.verdict == Verdict::kPossible);
  CHECK(other.evidence.find("Killed process 42 (python)") != std::string::npos);
  CHECK(watch.look(42).verdict == Verdict::kCertain);
  CHECK(watch.look(42).verdict == Verdict::kNothing);
}

TEST_CASE("words of a process in the kernel's log are no evidence") {
  const Files files;
  files.write("kmsg", "");
  OomWatch watch({files.path + "/kmsg", {}, true, {}});
  files.write("kmsg", "12,2,2,-;Killed process 42 (said by a user)\n", std::ios::app);
  CHECK(watch.look(42).verdict == Verdict::kNothing);
  files.write("kmsg", "6,3,3,-;Out of memory: Killed process -1 (x)\n", std::ios::app);
  CHECK(watch.look(-1).verdict == Verdict::kNothing);
}

TEST_CASE("each kill that the cgroup counts is told once") {
  const Files files;
  files.write("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
  OomWatch watch({"", {files.path + "/memory.events", "oom_kill"}, true, {}});
  CHECK(watch.look(1).verdict == Verdict::kNothing);
  CHECK(watch.evidence_of_any() == "");
  files.write("memory.events", "low 0\noom 5\noom_kill 4\noom_group_kill 0\n");
  CHECK(watch.evidence_of_any().find("has killed a process of the job there") != std::string::npos);
  CHECK(watch.look(1).verdict == Verdict::kCertain);
  CHECK(watch.look(2).verdict == Verdict::kCertain);
  CHECK(watch.look(3).verdict == Verdict::kNothing);
  files.write("memory.events", "low 0\n");
  CHECK(watch.look(4).verdict == Verdict::kNothing);
}

TEST_CASE("in a cgroup where others come and go, a counted kill may be one of theirs") {
  const Files files;
  const auto count = [&files](int kills) { files.write("memory.events", "oom_kill " + std::to_string(kills) + "\n"); };
  count(0);
  files.write("cgroup.procs", "1\n50\n");
  const auto is_own = [](pid_t pid) { return pid >= 100; };
  OomWatch watch({"", {files.path + "/memory.events", "oom_kill"}, true, {}, files.path + "/cgroup.procs", is_own});
  count(1);
  files.write("cgroup.procs", "1\n50\n100\n101\n");  // ours have come
  CHECK(watch.look(102).verdict == Verdict::kCertain);
  count(2);
  files.write("cgroup.procs", "1\n50\n60\n100\n");
  CHECK(watch.evidence_of_any() == "");
  const OomWatch::Finding other = watch.look(101);
  CHECK(other.verdict == Verdict::kPossible);
  CHECK(other.evidence.find("in which others run too") != std::string::npos);
  count(3);
  files.write("cgroup.procs", "1\n100\n");  // the victim may be 50
  CHECK(watch.look(101).verdict == Verdict::kPossible);
}

TEST_CASE("a limit that was hit, or a kill somewhere on the machine, makes it possible and no more") {
  const Files files;
  files.write("failcnt", "7\n");
  files.write("vmstat", "pgfault 7\noom_kill 2\npgmajfault 9\n");
  OomWatch limit({"", {files.path + "/failcnt", ""}, false, {}});
  OomWatch machine({"", {}, true, {files.path + "/vmstat", "oom_kill"}});
  CHECK(limit.look(1).verdict == Verdict::kNothing);
  CHECK(machine.look(1).verdict == Verdict::kNothing);
  files.write("failcnt", "8\n");
  files.write("vmstat", "pgfault 7\noom_kill 3\npgmajfault 9\n");
  CHECK(limit.look(1).verdict == Verdict::kPossible);
  CHECK(machine.look(1).verdict == Verdict::kPossible);
  CHECK(OomWatch({"/no/such/file", {"/no/such/file", "x"}, true, {"/no/such/file", "x"}}).look(1).verdict ==
        Verdict::kNothing);
}

TEST_CASE("the counter is that of our own memory cgroup, or of the nearest above that has one") {
  const std::string v2 = "30 24 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  const std::string v1 =
      "30 24 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "31 24 0:27 /docker/7 /cg/memory rw - cgroup cgroup rw,memory\n";
  const Files files;
  CHECK(cgroup_counter("0::/user/job\n", v2, files.path).file.empty());
  files.write("cg/user/memory.events", "oom_kill 0\n");
  CHECK(cgroup_counter("0::/user/job\n", v2, files.path).file == files.path + "/cg/user/memory.events");
  CHECK(cgroup_counter("0::/user/job\n", v2, files.path).is_above);
  files.write("cg/user/job/memory.events", "oom_kill 0\n");
  CHECK(cgroup_counter("0::/user/job\n", v2, files.path).file == files.path + "/cg/user/job/memory.events");
  CHECK_FALSE(cgroup_counter("0::/user/job\n", v2, files.path).is_above);
  files.write("cg/memory/a/memory.failcnt", "0\n");
  const std::string own = "5:cpu,cpuacct:/x\n4:memory:/docker/7/a\n0::/\n";
  CHECK(cgroup_counter(own, v1, files.path).name.empty());
  files.write("cg/memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  CHECK(cgroup_counter(own, v1 + v2, files.path).file == files.path + "/cg/memory/a/memory.oom_control");
  CHECK(cgroup_counter("nonsense\n0:\n", "nonsense - \n1 2 3 4 5 6 -\n", files.path).file.empty());
  CHECK(cgroup_counter("", "", files.path).file.empty());
}

TEST_CASE("a core dump is where the kernel's pattern puts it") {
  const CoreDump dump{123, 11, "/w", "node1"};
  CHECK(core_place("core", false, dump) == "in /w/core");
  CHECK(core_place("core", true, dump) == "in /w/core.123");
  CHECK(core_place("/var/crash/%h-%p-%s%%", true, dump) == "in /var/crash/node1-123-11%");
  CHECK(core_place("/cores/%e.%p", false, dump) == "in /cores/*.123");
  CHECK(core_place("odd%", false, dump) == "in /w/odd");
  CHECK(core_place("|/usr/lib/systemd/systemd-coredump %P %u", false, dump) ==
        "handed to /usr/lib/systemd/systemd-coredump; try: coredumpctl info 123");
  CHECK(core_place("|/usr/share/apport/apport %p", false, dump) == "handed to /usr/share/apport/apport");
  CHECK(core_place("|", false, dump) == "handed to ");
}

}  // namespace hvd::launch::post_mortem_test
