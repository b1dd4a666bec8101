// LiveFolder is the folder of one user on one machine in which each running hvdrun has a socket. Other commands of the
// same user find running jobs there.
//
// It is hvdrun below $XDG_RUNTIME_DIR, else /tmp/hvdrun-UID. An hvdrun that cron or @reboot has started has no such
// variable, and a login sets it to /run/user/UID; so commands that use one of these two places look in both. Only the
// user can enter it (0700). A folder that belongs to another user is refused, since anybody can make one in /tmp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

class LiveFolder {
 public:
  // Says where the folder is, for a process with this environment ("NAME=value").
  static LiveFolder of(const std::vector<std::string>& environment);
  // Says where jobs may be besides, whose hvdruns have another environment. Another place than the two is one that the
  // user keeps apart.
  static std::vector<LiveFolder> others_of(const std::vector<std::string>& environment);
  explicit LiveFolder(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string socket_of(const std::string& job_id) const { return path_ + "/" + job_id + ".job"; }
  // Makes the folder if it is missing, and refuses one that others own or can enter.
  [[nodiscard]] Result<void> make() const;
  // Returns the paths of the sockets there; none when there is no such folder.
  [[nodiscard]] Result<std::vector<std::string>> sockets() const;

 private:
  [[nodiscard]] Result<void> check() const;

  std::string path_;
};

}  // namespace hvd::launch
