// A real sshd on loopback with its own keys and configuration in a temporary directory, for tests of the ssh transport.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/base/fd.h"

namespace hvd::launch::test {

// mkdtemp, removed with all that is in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] std::string path(const std::string& name = "") const { return name.empty() ? dir_ : dir_ + "/" + name; }

 private:
  std::string dir_;
};

void write_file(const std::string& path, const std::string& text, unsigned mode = 0600);
std::string read_file(const std::string& path);
bool file_exists(const std::string& path);
// Names in a directory, sorted; none for a missing one.
std::vector<std::string> list_dir(const std::string& path);

struct Ran {
  int status = -1;
  std::string output;  // standard output and error together
};
// Runs argv to its end with `input` on its standard input.
Ran run_program(const std::vector<std::string>& argv, const std::string& input = "",
                const std::vector<std::string>& environment = {});

class Sshd {
 public:
  // Why there can be no sshd here; empty: there can.
  static std::string missing();

  // `extra`: more lines of sshd_config.
  explicit Sshd(const std::string& extra = "");
  ~Sshd();
  Sshd(const Sshd&) = delete;
  Sshd& operator=(const Sshd&) = delete;

  [[nodiscard]] int port() const { return port_; }
  // For `ssh -F`: host names node1 and others lead here; `extra` lines come first, so they win.
  [[nodiscard]] std::string write_client_config(const std::string& extra = "") const;
  [[nodiscard]] std::string path(const std::string& name) const { return dir_.path(name); }
  [[nodiscard]] std::string known_name() const { return "[127.0.0.1]:" + std::to_string(port_); }
  // The cache directory that agents are pushed to.
  [[nodiscard]] std::string cache() const { return dir_.path("cache/hvdrun"); }
  [[nodiscard]] std::string log() const { return read_file(dir_.path("sshd.log")); }
  // The processes that serve connections.
  [[nodiscard]] std::vector<pid_t> session_pids() const;

 private:
  bool start(const std::string& extra);

  TempDir dir_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace hvd::launch::test
