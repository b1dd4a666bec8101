#include "launcher/live/live_folder.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace hvd::launch {
namespace {

constexpr mode_t kOwnFolder = 0700;
constexpr mode_t kOthers = 0077;
constexpr std::string_view kVariable = "XDG_RUNTIME_DIR=";
// The path of a unix socket has at most 107 bytes, and the job's own name is a part of it.
constexpr std::size_t kLongest = 80;
constexpr std::string_view kEnding = ".job";

std::string place_without_variable() {
  return "/tmp/hvdrun-" + std::to_string(::geteuid());
}

std::string place_of(const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(kVariable) && entry.size() > kVariable.size() && entry[kVariable.size()] == '/' &&
        entry.size() - kVariable.size() <= kLongest && ::access(entry.c_str() + kVariable.size(), W_OK) == 0) {
      return entry.substr(kVariable.size()) + "/hvdrun";
    }
  }
  return place_without_variable();
}

}  // namespace

std::vector<LiveFolder> LiveFolder::others_of(const std::vector<std::string>& environment) {
  const std::string own = place_of(environment);
  const std::string without = place_without_variable();
  const std::string of_login = "/run/user/" + std::to_string(::geteuid()) + "/hvdrun";
  return own == without    ? std::vector<LiveFolder>{LiveFolder(of_login)}
         : own == of_login ? std::vector<LiveFolder>{LiveFolder(without)}
                           : std::vector<LiveFolder>();
}

LiveFolder LiveFolder::of(const std::vector<std::string>& environment) {
  return LiveFolder(place_of(environment));
}

Result<void> LiveFolder::check() const {
  struct stat info{};
  if (::lstat(path_.c_str(), &info) != 0) {
    return Error::from_errno("cannot look at the folder " + path_);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & kOthers) != 0) {
    return Error(Code::kResource, path_ + " is not a folder that belongs to you alone (0700), so running jobs are " +
                                      "not found there; remove it, or set XDG_RUNTIME_DIR to a folder of your own");
  }
  return {};
}

Result<void> LiveFolder::make() const {
  if (::mkdir(path_.c_str(), kOwnFolder) != 0 && errno != EEXIST) {
    return Error::from_errno("cannot make the folder " + path_);
  }
  return check();
}

Result<std::vector<std::string>> LiveFolder::sockets() const {
  std::vector<std::string> found;
  if (::access(path_.c_str(), F_OK) != 0) {
    return found;
  }
  HVD_TRY(check());
  std::error_code failed;
  for (auto it = std::filesystem::directory_iterator(path_, failed); it != std::filesystem::directory_iterator();
       it.increment(failed)) {
    if (it->path().filename().string().ends_with(kEnding)) {
      found.push_back(it->path().string());
    }
  }
  if (failed) {
    return Error::from_errno("cannot read the folder " + path_, failed.value());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace hvd::launch
