// OomWatch finds out whether the kernel has killed a process for lack of memory. So a rank that ended by such a SIGKILL
// differs from one that somebody killed. It looks for evidence and never guesses.
//
// Its sources are, the best first: the kernel's log (/dev/kmsg), which names the process, if it may be read and its
// numbers are ours (not in a container); the count of kills in our memory cgroup, which ranks inherit (v2: oom_kill in
// memory.events; v1: the same in memory.oom_control, before Linux 4.13 only memory.failcnt); oom_kill in /proc/vmstat,
// which counts for the whole machine. Thread: loop only. Nothing is read before somebody asks.
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

// KillCounter is a number in a file of "name number" lines; without a name, the file is the number.
struct KillCounter {
  std::string file;
  std::string name;
  bool is_above = false;  // it counts for a cgroup above this process's own, which may have others' processes

  [[nodiscard]] std::optional<std::uint64_t> read() const;
};

struct OomSources {
  std::string kernel_log;    // empty: not to be read
  KillCounter cgroup;        // empty file: none
  bool counts_kills = true;  // false: the cgroup counts only how often its limit was hit
  KillCounter machine;
  std::string processes{};              // lists those of the same cgroup; empty: not known
  std::function<bool(pid_t)> is_own{};  // whether this process has started that one, at any depth

  // Returns the sources of this process.
  static OomSources of_self();
};

// Returns the memory cgroup's counter, from the texts of /proc/self/cgroup and /proc/self/mountinfo. Its file is empty
// when they name none. `root` is put before the paths, for tests.
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

  // Kills from before this are not counted.
  explicit OomWatch(OomSources sources = OomSources::of_self());
  // Looks for the reason why a process of ours was killed. Each kill that a counter shows is reported once. When the
  // log names two ranks, both get it.
  [[nodiscard]] Finding look(pid_t pid);
  // Says what shows that the kernel has killed a process of the job here, perhaps a child of one that failed by itself;
  // empty: nothing. It takes nothing from look(), and leaves out what may have been a process of others.
  [[nodiscard]] std::string evidence_of_any() const;

 private:
  void read_kernel_log();
  // Returns true when the counter has risen since the last report, and reports one of its kills.
  static bool take(const KillCounter& counter, std::optional<std::uint64_t>& seen);
  // Other people's processes have come to or left our cgroup since we began, so a kill there may have been of theirs.
  [[nodiscard]] bool is_shared() const;

  const OomSources sources_;
  const std::set<pid_t> first_;  // in our cgroup when we began
  Fd kernel_log_;
  std::map<pid_t, std::string> killed_;  // in the kernel's log, and not asked for yet
  std::optional<std::uint64_t> seen_in_cgroup_;
  std::optional<std::uint64_t> seen_on_machine_;
};

}  // namespace hvd::launch
