#include "launcher/sampling/process_usage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include <dirent.h>

#include "runtime/base/fd.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// These files are short; what does not fit is not wanted.
std::string read_start(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 2048> buffer{};
  const ssize_t got = fd.is_open() ? ::read(fd.get(), buffer.data(), buffer.size()) : 0;
  return std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
}

std::optional<ProcessStat> stat_of(pid_t pid) {
  return parse_process_stat(read_start("/proc/" + std::to_string(pid) + "/stat"));
}

std::uint64_t ms_of_ticks(std::uint64_t ticks) {
  static const auto per_second = static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
  return ticks * 1000 / per_second;
}

// Returns those that the first thread of a process has started, which starts most.
std::vector<pid_t> children_of(pid_t process) {
  const std::string number = std::to_string(process);
  const std::string text = read_start("/proc/" + number + "/task/" + number + "/children");
  std::string_view rest = std::string_view(text).substr(0, text.find_last_of(' ') + 1);  // the last one may be cut
  std::vector<pid_t> children;
  while (!rest.empty()) {
    if (const auto child = parse_number<pid_t>(take_until(rest, ' '), 1)) {
      children.push_back(*child);
    }
  }
  return children;
}

void add_children(std::vector<pid_t>& tree) {
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (const pid_t child : children_of(tree[i])) {
      if (std::find(tree.begin(), tree.end(), child) == tree.end()) {
        tree.push_back(child);
      }
    }
  }
}

std::map<pid_t, pid_t> parents_of_all() {
  std::map<pid_t, pid_t> parents;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc"), ::closedir);
  while (const dirent* entry = directory == nullptr ? nullptr : ::readdir(directory.get())) {
    const auto pid = parse_number<pid_t>(entry->d_name, 1);
    const auto stat = pid ? stat_of(*pid) : std::nullopt;
    if (stat) {
      parents[*pid] = stat->parent;
    }
  }
  return parents;
}

}  // namespace

void ProcessUsage::look(const std::vector<pid_t>& roots) {
  until_look_ = kMeasuresPerLook;
  roots_ = roots;
  trees_.clear();
  const std::map<pid_t, pid_t> parents = parents_of_all();
  for (const auto& [pid, parent] : parents) {
    pid_t at = pid;
    for (std::size_t steps = 0; steps <= parents.size(); ++steps) {
      if (std::find(roots.begin(), roots.end(), at) != roots.end()) {
        trees_[at].push_back(pid);
        break;
      }
      const auto above = parents.find(at);
      if (above == parents.end() || above->second <= 1) {
        break;
      }
      at = above->second;
    }
  }
}

std::map<pid_t, Usage> ProcessUsage::measure(const std::vector<pid_t>& roots) {
  if (until_look_ <= 0 || roots != roots_) {
    look(roots);
  }
  --until_look_;
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::map<pid_t, Usage> all;
  for (const pid_t root : roots) {
    Usage& usage = all[root];
    std::vector<pid_t>& tree = trees_[root];
    add_children(tree);
    for (const pid_t pid : tree) {
      if (const auto stat = stat_of(pid)) {
        usage.processes += stat->state == 'Z' ? 0 : 1;
        usage.cpu_ms += ms_of_ticks(stat->ticks);  // of one that has ended too, until its parent counts it
        usage.memory_bytes += stat->pages * page_bytes;
      }
    }
    std::uint64_t& most = most_ms_[root];
    most = std::max(most, usage.cpu_ms);
    usage.cpu_ms = most;
  }
  std::erase_if(most_ms_, [&roots](const auto& entry) {
    return std::find(roots.begin(), roots.end(), entry.first) == roots.end();
  });
  return all;
}

std::uint64_t node_cpu_ms() {
  return ms_of_ticks(parse_busy_ticks(read_start("/proc/stat")).value_or(0));
}

NodeMemory node_memory() {
  return parse_meminfo(read_start("/proc/meminfo"));
}

}  // namespace hvd::launch
