// StateDir: where the service keeps what it knows, below $XDG_STATE_HOME/hvdrun, and how its processes tell each other
// that something has changed. All of it is the user's alone (0700, 0600).
//
//   service/jobs.db        the records (store.h)
//   service/locks/UUID     held by the supervisor of a job for as long as it lives
//   service/locks/wake     written by whoever changes a record
//   service/tickets/UUID   what the job is started with (ticket.h); removed with its end
//   service/runs/UUID/     what hvdrun says of the run, and what each rank printed
//
// A process id proves nothing, since another process may have it by now; a lock is given up by the kernel, whatever its
// holder dies of, and that is seen by everybody who watches the folder.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class StateDir {
 public:
  // Makes what is missing. `root` is .../hvdrun.
  static Result<StateDir> open(const std::string& root);

  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] std::string database() const;
  [[nodiscard]] std::string locks() const;
  [[nodiscard]] std::string lock_of(const std::string& uuid) const;
  [[nodiscard]] std::string tickets() const;
  [[nodiscard]] std::string ticket_of(const std::string& uuid) const;
  [[nodiscard]] std::string run_of(const std::string& uuid) const;
  // The folder of a run with all in it, but never what is mounted there.
  [[nodiscard]] Result<void> remove_run(const std::string& uuid) const;

  // Tells all that watch.
  void wake() const;

 private:
  explicit StateDir(std::string root) : root_(std::move(root)) {}

  std::string root_;
};

// A lock on a file, made if need be, for as long as the descriptor or a copy of it in any process is open. nullopt:
// another process has it.
Result<std::optional<Fd>> take_lock(const std::string& path);
// The same, waiting for it; an error after the deadline.
Result<Fd> wait_for_lock(const std::string& path, Deadline deadline);
// Without taking it, so that nobody else sees it taken.
bool is_locked(const std::string& path);

// Whatever happens in a folder when a file there was written or its writer has died.
class FolderWatch {
 public:
  static Result<FolderWatch> on(const std::string& folder);
  // One more.
  Result<void> add(const std::string& folder);

  // Until something has happened since the watch began or the last wait, or the time is over. True: before that. Where
  // no more watches can be had it returns every few seconds; and once a second after it was woken, for what was about
  // to happen only then.
  bool wait(Duration longest);

 private:
  explicit FolderWatch(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;  // closed: this user has as many watches as there may be
  bool was_woken_ = false;
};

// Of this machine's run, from one start to the next.
std::string boot_id();
// When a process began, in the kernel's own units; 0: there is none. With its number it names one process.
std::int64_t start_of_process(int pid);

}  // namespace hvd::launch
