// OomWatch: whether the kernel has killed a process for lack of memory, so that a rank that ends by SIGKILL can be told
// from one that somebody killed. It looks for evidence and never guesses.
//
// Sources, the best first: the kernel's log (/dev/kmsg), which names the process, where it may be read and its numbers
// are ours (not in a container); the count of kills in our memory cgroup, which ranks inherit (v2: oom_kill in
// memory.events; v1: the same in memory.oom_control, before Linux 4.13 only memory.failcnt); oom_kill in /proc/vmstat,
// which counts those of the whole machine. Thread: loop only. Nothing is read before somebody asks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/fd.h"

namespace hvd::launch {

// A number in a file of "name number" lines; without a name, the file is the number.
struct KillCounter {
  std::string file;
  std::string name;

  [[nodiscard]] std::optional<std::uint64_t> read() const;
};

struct OomSources {
  std::string kernel_log;    // empty: not to be read
  KillCounter cgroup;        // empty file: none
  bool counts_kills = true;  // false: the cgroup counts only how often its limit was hit
  KillCounter machine;
  std::string processes{};              // lists those of the same cgroup; empty: not known
  std::function<bool(pid_t)> is_own{};  // whether this process has started that one, at any depth

  // Those of this process.
  static OomSources of_self();
};

// The memory cgroup's counter, from the texts of /proc/self/cgroup and /proc/self/mountinfo; an empty file when they
// name none. `root`: put before the paths, for tests.
KillCounter cgroup_counter(const std::string& cgroups, const std::string& mounts, const std::string& root = "");

class OomWatch {
 public:
  enum class Verdict : std::uint8_t {
    kNothing,   // no sign of it
    kPossible,  // a process was killed so, and it is not known which
    kCertain
  };
  struct Finding {
    Verdict verdict = Verdict::kNothing;
    std::string evidence;  // what was seen, and where; in words
  };

  // What happened before is not counted.
  explicit OomWatch(OomSources sources = OomSources::of_self());
  // Of a process of ours that was killed. Each kill that a counter tells is told once: of two ranks that were killed
  // so, both get it.
  [[nodiscard]] Finding look(pid_t pid);

 private:
  void read_kernel_log();
  // True when it has risen since it was last told; takes one.
  static bool take(const KillCounter& counter, std::optional<std::uint64_t>& seen);
  // Somebody else's processes have come to or gone from our cgroup since we began: a kill there may have been theirs.
  [[nodiscard]] bool is_shared() const;

  const OomSources sources_;
  const std::set<pid_t> first_;  // in our cgroup when we began
  Fd kernel_log_;
  std::map<pid_t, std::string> killed_;  // in the kernel's log, and not asked for yet
  std::optional<std::uint64_t> seen_in_cgroup_;
  std::optional<std::uint64_t> seen_on_machine_;
};

}  // namespace hvd::launch
