#include "launcher/process/own_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

#include <limits.h>

#include "launcher/process/spawn.h"

namespace hvd {
namespace {

// Returns the path by which this process was started; empty: it is not an absolute one.
std::string path_of_start() {
  std::ifstream words("/proc/self/cmdline", std::ios::binary);
  std::string first;
  std::getline(words, first, '\0');
  return first.starts_with('/') ? first : "";
}

bool is_executable_file(const std::string& path, struct stat& info) {
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// True for an absolute path in which neither a link nor the file system has to be asked what a part of it means.
bool is_plain_path(std::string_view path) {
  if (!path.starts_with('/')) {
    return false;
  }
  for (std::size_t begin = 1; begin <= path.size() && path != "/";) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

}  // namespace

Result<std::string> own_program() {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t size = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  if (size <= 0) {
    return Error::from_errno("cannot tell where this program is (/proc/self/exe)");
  }
  std::string_view path(buffer.data(), static_cast<std::size_t>(size));
  constexpr std::string_view kReplaced = " (deleted)";
  if (path.ends_with(kReplaced)) {
    path.remove_suffix(kReplaced.size());
  }
  std::string program(path);
  struct stat info{};
  if (const std::string start = path_of_start();
      !is_executable_file(program, info) && is_executable_file(start, info)) {
    return start;
  }
  return program;
}

OwnInstallation::OwnInstallation() : path_(path_of_start()) {
  // What is at the path may be another version already.
  struct stat info{};
  if (::stat("/proc/self/exe", &info) != 0) {
    path_.clear();
  }
  device_ = info.st_dev;
  file_ = info.st_ino;
}

OwnInstallation::State OwnInstallation::state() const {
  struct stat info{};
  if (path_.empty()) {
    return State::kSame;
  }
  if (is_executable_file(path_, info)) {
    return info.st_dev == device_ && info.st_ino == file_ ? State::kSame : State::kReplaced;
  }
  // One that was moved elsewhere still works there.
  const auto program = own_program();
  return program.ok() && is_executable_file(program.value(), info) ? State::kSame : State::kGone;
}

Result<std::string> working_directory(const std::vector<std::string>& environment) {
  const std::string named = launch::value_in(environment, "PWD");
  struct stat there{};
  struct stat here{};
  if (is_plain_path(named) && ::stat(named.c_str(), &there) == 0 && ::stat(".", &here) == 0 &&
      there.st_dev == here.st_dev && there.st_ino == here.st_ino) {
    return named;
  }
  std::array<char, PATH_MAX> buffer{};
  if (::getcwd(buffer.data(), buffer.size()) == nullptr) {
    return Error::from_errno("cannot tell the working directory");
  }
  return std::string(buffer.data());
}

std::string own_processor() {
  utsname name{};
  ::uname(&name);
  return name.machine;
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string parent_name() {
  std::ifstream file("/proc/" + std::to_string(::getppid()) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

Result<void> end_with_parent(int parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) {
    return Error::from_errno("prctl(PR_SET_PDEATHSIG)");
  }
  // A shell between the two is told of no end; that is as if nobody had asked.
  if (::getppid() != parent && ::kill(parent, 0) != 0 && errno == ESRCH) {
    return Error(Code::kCancelled, "the program that started hvdrun is gone (process " + std::to_string(parent) + ")");
  }
  return {};
}

Result<Fd> take_standard_input() {
  HVD_TRY_ASSIGN(Fd input, duplicate(STDIN_FILENO));
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing.is_open() || ::dup2(nothing.get(), STDIN_FILENO) < 0) {
    return Error::from_errno("open /dev/null");
  }
  return input;
}

void give_standard_input_back(const Fd& untaken) {
  if (untaken.is_open()) {
    static_cast<void>(::dup2(untaken.get(), STDIN_FILENO));  // else /dev/null stays
  }
}

}  // namespace hvd
