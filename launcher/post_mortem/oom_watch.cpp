#include "launcher/post_mortem/oom_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/process/descendants.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// The kernel gives its first pid namespace this number (PROC_PID_INIT_INO). In others, its log means other processes.
constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";
// At most so many records are read in one go, so that a flooded log cannot hold up the loop.
constexpr int kMostRecords = 20'000;
constexpr std::size_t kMostKilled = 1'000;
constexpr std::size_t kEvidenceBytes = 160;

bool has_numbers_of_the_kernel() {
  std::array<char, 64> name{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return size > 0 && std::string_view(name.data(), static_cast<std::size_t>(size)) == kFirstPidNamespace;
}

struct CgroupMount {
  std::string root;   // the cgroup that is mounted
  std::string point;  // where
  bool is_v2 = false;
};

// Reads a line of mountinfo(5): "36 35 98:0 ROOT POINT options [fields] - TYPE source super-options".
std::optional<CgroupMount> memory_mount(const std::string& line) {
  std::istringstream in(line);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  for (std::size_t i = 6; i + 3 < words.size(); ++i) {
    if (words[i] != "-") {
      continue;
    }
    const bool is_v2 = words[i + 1] == "cgroup2";
    if (is_v2 || (words[i + 1] == "cgroup" && has_word(words[i + 3], "memory", ','))) {
      return CgroupMount{words[3], words[4], is_v2};
    }
  }
  return std::nullopt;
}

// Returns the path of our own cgroup for memory: "4:memory:/a/b" in v1, "0::/a/b" in v2.
std::optional<std::string> own_path(const std::string& cgroups, bool is_v2) {
  std::istringstream in(cgroups);
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (is_v2 ? line.starts_with("0::") : has_word(controllers, "memory", ',')) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

bool exists(const std::string& file) {
  struct stat info{};
  return ::stat(file.c_str(), &info) == 0;
}

// Returns the counter of this cgroup, or of the nearest one above with a memory controller, which counts for this one.
KillCounter counter_in(const CgroupMount& mount, std::string path, const std::string& root) {
  if (mount.root != "/" && path.starts_with(mount.root)) {
    path.erase(0, mount.root.size());
  }
  for (bool is_above = false;; is_above = true) {
    const std::string folder = root + mount.point + (path == "/" ? "" : path);
    for (const KillCounter& counter : {KillCounter{folder + "/memory.events", "oom_kill", is_above},
                                       KillCounter{folder + "/memory.oom_control", "oom_kill", is_above},
                                       KillCounter{folder + "/memory.failcnt", "", is_above}}) {
      if (counter.read()) {
        return counter;
      }
    }
    if (path.empty() || path == "/" || !exists(root + mount.point)) {
      return {};
    }
    path.erase(path.rfind('/'));
  }
}

// Reads 4711 from "Memory cgroup out of memory: Killed process 4711 (python) total-vm:...".
std::optional<pid_t> killed_in(std::string_view message) {
  constexpr std::string_view kWords = "Killed process ";
  const auto at = message.find(kWords);
  if (at == std::string_view::npos || message.find("ut of memory") == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view number = message.substr(at + kWords.size());
  pid_t pid = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), pid);
  return failed == std::errc() && pid > 0 ? std::optional(pid) : std::nullopt;
}

// The kernel lists processes of other pid namespaces as 0.
std::set<pid_t> processes_in(const std::string& file) {
  std::set<pid_t> processes;
  std::ifstream in(file);
  for (pid_t pid = 0; !file.empty() && in >> pid;) {
    processes.insert(pid);
  }
  return processes;
}

}  // namespace

std::optional<std::uint64_t> KillCounter::read() const {
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (name.empty()) {
    return in >> number ? std::optional(number) : std::nullopt;
  }
  for (std::string word; in >> word >> number;) {
    if (word == name) {
      return number;
    }
  }
  return std::nullopt;
}

KillCounter cgroup_counter(const std::string& cgroups, const std::string& mounts, const std::string& root) {
  std::istringstream in(mounts);
  for (std::string line; std::getline(in, line);) {
    const auto mount = memory_mount(line);
    const auto path = mount ? own_path(cgroups, mount->is_v2) : std::nullopt;
    if (!path) {
      continue;
    }
    if (KillCounter found = counter_in(*mount, *path, root); !found.file.empty()) {
      return found;
    }
  }
  return {};
}

OomSources OomSources::of_self() {
  OomSources sources;
  sources.kernel_log = has_numbers_of_the_kernel() ? "/dev/kmsg" : "";
  sources.cgroup = cgroup_counter(text_of_file("/proc/self/cgroup"), text_of_file("/proc/self/mountinfo"));
  sources.counts_kills = !sources.cgroup.name.empty();
  sources.machine = {"/proc/vmstat", "oom_kill"};
  if (sources.counts_kills) {
    sources.processes = sources.cgroup.file.substr(0, sources.cgroup.file.rfind('/')) + "/cgroup.procs";
  }
  sources.is_own = is_descendant;
  return sources;
}

OomWatch::OomWatch(OomSources sources)
    : sources_(std::move(sources)),
      first_(processes_in(sources_.processes)),
      seen_in_cgroup_(sources_.cgroup.read()),
      seen_on_machine_(sources_.machine.read()) {
  if (!sources_.kernel_log.empty()) {
    kernel_log_ = Fd(::open(sources_.kernel_log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    ::lseek(kernel_log_.get(), 0, SEEK_END);
  }
}

// Each read gives one record: "6,1234,5678,-;message\n".
void OomWatch::read_kernel_log() {
  std::array<char, 8192> record;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (int i = 0; i < kMostRecords && kernel_log_.is_open(); ++i) {
    const ssize_t size = ::read(kernel_log_.get(), record.data(), record.size());
    if (size <= 0) {
      if (size < 0 && (errno == EPIPE || errno == EINTR)) {
        continue;  // records that were overwritten before we came
      }
      return;
    }
    std::string_view text(record.data(), static_cast<std::size_t>(size));
    text.remove_prefix(std::min(text.size(), text.find(';') + 1));
    text = text.substr(0, text.find('\n'));
    if (const auto pid = killed_in(text); pid && killed_.size() < kMostKilled) {
      killed_[*pid] = std::string(text.substr(0, kEvidenceBytes));
    }
  }
}

bool OomWatch::take(const KillCounter& counter, std::optional<std::uint64_t>& seen) {
  const auto now = counter.read();
  if (!now || !seen || *now <= *seen) {
    return false;
  }
  ++*seen;
  return true;
}

bool OomWatch::is_shared() const {
  if (sources_.cgroup.is_above) {
    return true;
  }
  const std::set<pid_t> now = processes_in(sources_.processes);
  return std::any_of(first_.begin(), first_.end(), [&now](pid_t pid) { return !now.contains(pid); }) ||
         std::any_of(now.begin(), now.end(),
                     [this](pid_t pid) { return !first_.contains(pid) && !sources_.is_own(pid); });
}

std::string OomWatch::evidence_of_any() const {
  const auto now = sources_.cgroup.read();
  const bool has_risen = now && seen_in_cgroup_ && *now > *seen_in_cgroup_;
  return has_risen && sources_.counts_kills && !is_shared()
             ? "the kernel has killed a process of the job there, so counts its memory cgroup, in " +
                   sources_.cgroup.file
             : "";
}

OomWatch::Finding OomWatch::look(pid_t pid) {
  read_kernel_log();
  const bool has_risen = take(sources_.cgroup, seen_in_cgroup_);
  const bool has_risen_anywhere = take(sources_.machine, seen_on_machine_);
  if (const auto found = killed_.find(pid); found != killed_.end()) {
    const std::string line = found->second;
    killed_.erase(found);
    return {Verdict::kCertain, "the kernel's log says: " + line};
  }
  if (!killed_.empty()) {
    // The kernel may have killed a child, whose end the rank has not survived. The log says no more.
    return {Verdict::kPossible, "the kernel's log says: " + killed_.begin()->second};
  }
  if (has_risen && sources_.counts_kills && is_shared()) {
    return {Verdict::kPossible, "so counts its memory cgroup, in which others run too (" + sources_.cgroup.file + ")"};
  }
  if (has_risen && sources_.counts_kills) {
    return {Verdict::kCertain, "so counts its memory cgroup, in " + sources_.cgroup.file};
  }
  if (has_risen) {
    return {Verdict::kPossible, "its memory cgroup has hit its limit (" + sources_.cgroup.file + ")"};
  }
  if (has_risen_anywhere) {
    return {Verdict::kPossible, "since the job began the kernel has killed a process of that host for lack of memory"};
  }
  return {};
}

}  // namespace hvd::launch
