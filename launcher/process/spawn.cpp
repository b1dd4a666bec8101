#include "launcher/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "launcher/process/child_exec.h"
#include "runtime/base/check.h"

namespace hvd::launch {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) {
    pointers.push_back(const_cast<char*>(text.c_str()));  // execve(2) takes it so and changes nothing
  }
  pointers.push_back(nullptr);
  return pointers;
}

// The kernel limits both: all together (a quarter of ulimit -s), and each word or variable (128 KiB).
std::string sizes_of(const SpawnOptions& options) {
  std::size_t all = 0;
  std::string longest;
  std::size_t most = 0;
  for (const auto* list : {&options.argv, &options.environment}) {
    for (const std::string& text : *list) {
      all += text.size() + 1;
      if (text.size() > most) {
        most = text.size();
        longest = list == &options.environment ? "the variable " + text.substr(0, text.find('=')) : "an argument";
      }
    }
  }
  return std::to_string(all) + " bytes of arguments and environment, of which " + longest + " has " +
         std::to_string(most);
}

Error describe(const ChildFailure& failure, const SpawnOptions& options, const std::string& path) {
  switch (failure.stage) {
    case ChildStage::kSetup:
      return Error::from_errno("cannot prepare the process of '" + options.argv.front() + "'", failure.sys_errno);
    case ChildStage::kChdir:
      return Error::from_errno("cannot enter the working directory '" + options.cwd + "'", failure.sys_errno);
    case ChildStage::kBind:
      return Error::from_errno(
          "cannot bind '" + options.argv.front() + "' to processors " + cpu_list_text(options.cpus), failure.sys_errno);
    case ChildStage::kExec:
      break;
  }
  if (failure.sys_errno == ENOENT) {
    // The file was found and exists, so the interpreter of its first line is missing.
    return Error::from_errno("cannot run '" + path + "', its interpreter (#!) is missing", ENOENT);
  }
  if (failure.sys_errno == E2BIG) {
    return Error::from_errno("cannot run '" + path + "' with " + sizes_of(options), E2BIG);
  }
  return Error::from_errno("cannot run '" + path + "'", failure.sys_errno);
}

// Waits until the child has exec'ed (end of file, from close-on-exec) or has reported why it could not.
Result<void> await_exec(int error_fd, pid_t pid, const SpawnOptions& options, const std::string& path) {
  ChildFailure failure;
  ssize_t got = 0;
  do {
    got = ::read(error_fd, &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof failure)) {
    ::waitpid(pid, nullptr, 0);
    return describe(failure, options, path);
  }
  return {};
}

bool is_program(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string joined(const std::string& directory, const std::string& name) {
  return directory.empty() || name.front() == '/' ? name : directory + "/" + name;
}

// Returns the form that sched_setaffinity(2) takes. A cpu_set_t is an array of words, and several are a longer one.
std::vector<cpu_set_t> affinity_of(const CpuList& cpus) {
  if (cpus.empty()) {
    return {};
  }
  std::vector<cpu_set_t> sets(static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) / CPU_SETSIZE + 1);
  for (const std::int32_t cpu : cpus) {
    const auto number = static_cast<std::size_t>(cpu);
    CPU_SET(number % CPU_SETSIZE, &sets[number / CPU_SETSIZE]);
  }
  return sets;
}

}  // namespace

std::string value_in(const std::vector<std::string>& environment, const std::string& name) {
  const std::string prefix = name + "=";
  for (auto it = environment.rbegin(); it != environment.rend(); ++it) {
    if (it->compare(0, prefix.size(), prefix) == 0) {
      return it->substr(prefix.size());
    }
  }
  return "";
}

Result<std::string> find_program(const std::string& program, const std::string& search_path, const std::string& cwd) {
  if (program.find('/') != std::string::npos) {
    const std::string path = joined(cwd, program);
    if (is_program(path)) {
      return path;
    }
    std::error_code failed;
    const auto status = std::filesystem::status(path, failed);
    if (std::filesystem::is_directory(status)) {
      return Error(Code::kInvalid, "'" + path + "' is a directory, not a program");
    }
    if (failed == std::errc::permission_denied) {
      return Error(Code::kInvalid,
                   "cannot reach '" + path + "': this user (" + std::to_string(::geteuid()) +
                       ") may not enter one of its directories, or of those that a link in it leads to");
    }
    return std::filesystem::exists(status)
               ? Error(Code::kInvalid, "'" + path + "' is not an executable file; chmod +x, or name its interpreter")
               : Error(Code::kNotFound, "no such program: '" + path + "'");
  }
  std::size_t begin = 0;
  while (!program.empty() && begin <= search_path.size()) {
    const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
    const std::string directory = search_path.substr(begin, end - begin);
    const std::string path = joined(cwd, (directory.empty() ? "." : directory) + "/" + program);
    if (is_program(path)) {
      return path;
    }
    begin = end + 1;
  }
  if (const std::string here = joined(cwd, program); !program.empty() && ::access(here.c_str(), F_OK) == 0) {
    const bool is_job = program.ends_with(".json") || program.ends_with(".yaml") || program.ends_with(".yml");
    const std::string other = program.ends_with(".py") ? "python " + program + ", or " : "";
    return Error(Code::kNotFound, "no program '" + program + "' in PATH; it is a file of the working directory: " +
                                      (is_job ? "as a job file, -f " + program : other + "./" + program));
  }
  const bool has_python3 = program == "python" && find_program("python3", search_path, cwd).ok();
  const bool is_line = program.find(' ') != std::string::npos;
  return Error(Code::kNotFound, "no such program: '" + program + "' in PATH (" + search_path + ")" +
                                    (has_python3 ? "; python3 is there"
                                     : is_line   ? "; quotes make it one word: leave them out, or use sh -c '...'"
                                                 : ""));
}

Result<pid_t> spawn(const SpawnOptions& options) {
  HVD_CHECK(!options.argv.empty());
  HVD_TRY_ASSIGN(const std::string path,
                 find_program(options.argv.front(), value_in(options.environment, "PATH"), options.cwd));
  HVD_TRY_ASSIGN(Pipe error_pipe, make_pipe());
  Fd null_fd;
  if (options.stdin_fd < 0) {
    null_fd = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null_fd.is_open()) {
      return Error::from_errno("open /dev/null");
    }
  }
  // A script without its interpreter is run as a shell would run it.
  std::vector<std::string> shell_words = {"/bin/sh", path};
  shell_words.insert(shell_words.end(), options.argv.begin() + 1, options.argv.end());
  const std::vector<char*> shell_argv = pointers_to(shell_words);
  const std::vector<char*> argv = pointers_to(options.argv);
  const std::vector<char*> envp = pointers_to(options.environment);
  ChildPlan plan;
  plan.path = path.c_str();
  plan.argv = argv.data();
  plan.shell_argv = shell_argv.data();
  plan.envp = envp.data();
  plan.cwd = options.cwd.empty() ? nullptr : options.cwd.c_str();
  plan.stdin_fd = options.stdin_fd < 0 ? null_fd.get() : options.stdin_fd;
  plan.stdout_fd = options.stdout_fd;
  plan.stderr_fd = options.stderr_fd;
  plan.error_fd = error_pipe.write_end.get();
  plan.parent = ::getpid();
  plan.dies_with_parent = options.dies_with_parent;
  plan.is_readable_by_parent = options.is_readable_by_parent;
  plan.death_signal = options.death_signal;
  plan.new_session = options.new_session;
  plan.open_files = options.open_files;
  const std::vector<cpu_set_t> affinity = affinity_of(options.cpus);
  plan.affinity = affinity.data();
  plan.affinity_bytes = affinity.size() * sizeof(cpu_set_t);

  // Signals are blocked across the fork, so that no handler of the parent runs in the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  const int fork_errno = errno;
  if (pid == 0) {
    run_child(plan);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    return Error::from_errno("cannot start a process (fork)", fork_errno);
  }
  error_pipe.write_end.reset();
  HVD_TRY(await_exec(error_pipe.read_end.get(), pid, options, path));
  return pid;
}

}  // namespace hvd::launch
