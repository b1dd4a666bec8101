#include "launcher/survey/own_stacks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string_view>

#include <dirent.h>

#include "launcher/process/output_of.h"
#include "launcher/process/spawn.h"
#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

constexpr const char* kReader = "py-spy";
// A process that runs may change under the reader, which then fails: so it is read again.
constexpr int kTries = 4;
constexpr std::size_t kMostText = 512U << 10U;

std::string proc(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

std::vector<std::string> environment_of_process(pid_t pid) {
  std::vector<std::string> all;
  std::istringstream text(text_of_file(proc(pid, "environ")));
  for (std::string entry; std::getline(text, entry, '\0');) {
    all.push_back(entry);
  }
  return all;
}

std::string first_word_of_process(pid_t pid) {
  const std::string line = text_of_file(proc(pid, "cmdline"));
  return line.substr(0, line.find('\0'));
}

bool is_python(pid_t pid) {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink(proc(pid, "exe").c_str(), path.data(), path.size());
  const std::string_view exe(path.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return exe.substr(exe.rfind('/') + 1).starts_with("python") ||
         text_of_file(proc(pid, "maps")).find("/libpython") != std::string::npos;
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  DIR* folder = ::opendir("/proc");
  while (const dirent* entry = folder != nullptr ? ::readdir(folder) : nullptr) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) {
      continue;
    }
    const std::string stat = text_of_file(proc(pid, "stat"));
    std::istringstream rest(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    std::string state;
    pid_t parent = 0;
    rest >> state >> parent;
    children.emplace(parent, pid);
  }
  if (folder != nullptr) {
    ::closedir(folder);
  }
  return children;
}

// Returns the nearest Python at or below the process, as when a rank is a shell that starts one; 0: there is none.
pid_t python_below(pid_t pid) {
  if (is_python(pid)) {
    return pid;
  }
  const auto children = children_by_parent();
  std::deque<pid_t> left{pid};
  while (!left.empty()) {
    const pid_t next = left.front();
    left.pop_front();
    if (next != pid && is_python(next)) {
      return next;
    }
    const auto [first, last] = children.equal_range(next);
    std::for_each(first, last, [&left](const auto& entry) { left.push_back(entry.second); });
  }
  return 0;
}

// Looks where the rank itself would: beside its Python, in its PATH, in the folder of pip install --user.
std::string search_path(const std::string& python, std::initializer_list<const std::vector<std::string>*> all) {
  std::string path = python.find('/') == std::string::npos ? "" : python.substr(0, python.rfind('/')) + ":";
  for (const auto* environment : all) {
    path += value_in(*environment, "PATH") + ":";
    const std::string home = value_in(*environment, "HOME");
    path += home.empty() ? "" : home + "/.local/bin:";
  }
  return path;
}

std::string reader_for(pid_t pid, const std::vector<std::string>& own) {
  const std::vector<std::string> its = environment_of_process(pid);
  const auto found = find_program(kReader, search_path(first_word_of_process(pid), {&its, &own}), proc(pid, "cwd"));
  return found.ok() ? found.value() : "";
}

}  // namespace

std::string find_stack_reader(const std::string& python, const std::vector<std::string>& environment) {
  const auto found = find_program(kReader, search_path(python, {&environment}), "");
  return found.ok() ? found.value() : "";
}

std::string kernel_view(pid_t pid) {
  std::istringstream status(text_of_file(proc(pid, "status")));
  std::string state;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:") && line.find('(') != std::string::npos) {
      state = line.substr(line.find('(') + 1);
      state = state.substr(0, state.find(')'));
    }
  }
  if (state.empty()) {
    return "";
  }
  std::string where = text_of_file(proc(pid, "wchan"));
  where = where.empty() || where == "0" ? "" : " in " + where;
  std::string call = text_of_file(proc(pid, "syscall"));
  call = call.substr(0, call.find_first_of(" \n"));
  const bool is_number = !call.empty() && call.find_first_not_of("0123456789") == std::string::npos;
  return state + where + (is_number ? ", system call " + call : "");
}

RankStacks own_stacks(pid_t pid, bool is_native, const std::vector<std::string>& environment, Deadline deadline) {
  RankStacks stacks;
  const pid_t python = python_below(pid);
  stacks.pid = python > 0 ? python : pid;
  stacks.kernel = kernel_view(stacks.pid);
  if (python == 0) {
    stacks.why = "it runs no Python";
    return stacks;
  }
  const std::string reader = reader_for(python, environment);
  if (reader.empty()) {
    stacks.why = "there is no py-spy on the node; install it beside its Python: pip install py-spy";
    return stacks;
  }
  std::vector<std::string> argv = {reader, "dump", "--json", "--locals", "--pid", std::to_string(python)};
  argv.push_back(is_native ? "--native" : "--nonblocking");
  for (int i = 0; i < kTries && stacks.text.empty() && !deadline.has_passed(); ++i) {
    auto printed = output_of(argv, environment, deadline);
    if (printed.ok() && printed.value().size() <= kMostText) {
      // A warning may stand before the JSON.
      stacks.text = printed.value().substr(std::min(printed.value().find("[\n"), printed.value().size()));
    }
    stacks.why = printed.ok() ? stacks.text.empty() ? "py-spy printed no stacks, or too much of them" : ""
                              : printed.error().message();
  }
  if (stacks.why.find("ermission denied") != std::string::npos) {
    stacks.why = "the kernel does not let py-spy read it: see kernel.yama.ptrace_scope, and SYS_PTRACE of a container";
  }
  return stacks;
}

}  // namespace hvd::launch
