// What this process has from who started it: its program, its working directory, and its standard input.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

// Returns the path of the program that this process runs. Where another version was installed in its place meanwhile,
// it is the path of that one, also where the old one was renamed before it was removed, as pip does. An error says that
// the kernel does not tell (no /proc). Thread: any.
Result<std::string> own_program();

// OwnInstallation notices that another version is installed where this program was started, or none. Thread: any.
class OwnInstallation {
 public:
  OwnInstallation();

  enum class State : std::uint8_t { kSame, kReplaced, kGone };
  [[nodiscard]] State state() const;
  // The path by which this process was started; empty: it is not an absolute one, and nothing is noticed.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t file_ = 0;
};

// Returns the working directory by the name that the user knows it by: PWD of the environment ("NAME=value"), where
// that is one of it. It may lead through links, as those of an automounter, and what the links lead to may have another
// path on every host. Thread: any.
Result<std::string> working_directory(const std::vector<std::string>& environment);

// Returns the processor of this machine, as `uname -m` says it: "x86_64". Thread: any.
std::string own_processor();

// Returns the name of this machine, as `hostname` says it; empty: the kernel does not tell. Thread: any.
std::string own_host_name();

// Returns the name of the program that has started this one, as `ps -o comm` has it; empty: it is not told.
std::string parent_name();

// From now on this process gets SIGTERM when the thread that has started it ends, however that happens. Returns an
// error when there is no process `parent` any more, which has started it. Thread: any.
Result<void> end_with_parent(int parent);

// Takes standard input over: returns a descriptor for it, and puts /dev/null in its place. So programs that are started
// later do not inherit it, and its writer learns when this descriptor is closed. Thread: one, before others read it.
Result<Fd> take_standard_input();
// `untaken` is what take_standard_input() has returned, if nothing was read from it: it becomes standard input again.
void give_standard_input_back(const Fd& untaken);

}  // namespace hvd
