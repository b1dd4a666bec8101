#include "launcher/process/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include <dirent.h>

#include "runtime/base/fd.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Returns the parent that /proc/PID/stat names; -1: none.
pid_t parent_of(const std::string& stat) {
  constexpr int kParent = 4;  // as proc(5) numbers the fields
  return parse_number<pid_t>(stat_field(stat, kParent)).value_or(-1);
}

// The process that starts one leaves it to us only when it runs its program.
bool is_supervisor(pid_t pid) {
  const std::string words = text_of_file("/proc/" + std::to_string(pid) + "/cmdline");
  const std::size_t end = words.find('\0');
  const std::size_t begin = words.rfind('/', end) + 1;  // npos: 0
  return end != std::string::npos && std::string_view(words).substr(begin, end - begin) == "hvdrun" &&
         std::string_view(words.c_str() + end + 1) == kSuperviseWord;
}

}  // namespace

bool is_descendant(pid_t pid) {
  const pid_t self = ::getpid();
  for (pid_t at = pid; at != self;) {
    const std::string stat = text_of_file("/proc/" + std::to_string(at) + "/stat");
    if (stat.empty()) {
      return true;  // it is gone, and its children have come to us or to nobody
    }
    at = parent_of(stat);
    if (at <= 1 && at != self) {
      return false;
    }
  }
  return true;
}

Result<void> become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return Error::from_errno("prctl(PR_SET_CHILD_SUBREAPER)");
  }
  return {};
}

// Reads all of /proc rather than /proc/self/task/TID/children: that file is absent in some kernels, and may miss
// entries while children end (proc(5)).
std::vector<pid_t> children_of_self() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc"), ::closedir);
  const pid_t self = ::getpid();
  while (directory != nullptr) {
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) {
      break;
    }
    const std::string_view name(entry->d_name);
    pid_t pid = -1;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed == std::errc() && end == name.data() + name.size() && pid > 0 &&
        parent_of(text_of_file("/proc/" + std::string(name) + "/stat")) == self) {
      children.push_back(pid);
    }
  }
  return children;
}

std::vector<pid_t> children_of_job() {
  std::vector<pid_t> children = children_of_self();
  std::erase_if(children, is_supervisor);
  return children;
}

void signal_children(const std::vector<pid_t>& children, int signo) {
  for (const pid_t pid : children) {
    if (pid > 0) {
      ::kill(pid, signo);
    }
  }
}

}  // namespace hvd::launch
