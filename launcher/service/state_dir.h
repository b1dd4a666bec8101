// StateDir is the folder below $XDG_STATE_HOME/hvdrun where the service keeps its files, and through which its
// processes notify each other of changes. Only the user can read it (0700, 0600).
//
//   service/jobs.db        the records (job_store.h)
//   service/locks/UUID     held by the supervisor of a job for as long as it lives
//   service/locks/wake     written by each process that changes a record
//   service/tickets/UUID   what the job is started with (ticket.h); removed with its end
//   service/runs/UUID/     hvdrun's messages about the run, its page, and what each rank printed
//   service/machine        on a network file system: the machine whose jobs these are
//
// A process id proves nothing, since another process may have it by now. A lock is released by the kernel however its
// holder dies, and every process that watches the folder sees that.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class StateDir {
 public:
  // Creates what is missing. `root` is .../hvdrun.
  static Result<StateDir> open(const std::string& root);

  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] std::string database() const;
  [[nodiscard]] std::string locks() const;
  [[nodiscard]] std::string lock_of(const std::string& uuid) const;
  [[nodiscard]] std::string tickets() const;
  [[nodiscard]] std::string ticket_of(const std::string& uuid) const;
  [[nodiscard]] std::string run_of(const std::string& uuid) const;
  // The run's page (launcher/page); where the user has it kept elsewhere, a link to it.
  [[nodiscard]] std::string page_of(const std::string& uuid) const;
  // Removes the folder of a run and its contents, but never the contents of what is mounted there.
  [[nodiscard]] Result<void> remove_run(const std::string& uuid) const;

  // Notifies every process that watches.
  void wake() const;

 private:
  explicit StateDir(std::string root) : root_(std::move(root)) {}

  std::string root_;
};

// Returns whether another machine may see the same folder: it lies on NFS, SMB, Lustre or another network file system.
// Thread: any.
bool is_on_network(const std::string& folder);
// Makes `machine` the owner of the folder, where it has none yet: its file `machine` holds the name. On a network file
// system the database's shared memory and the watches on folders work between the processes of one machine only, so a
// second one would damage the records. An error says which machine the owner is, or that the file cannot be made.
// Thread: any; of several callers at once, one becomes the owner.
Result<void> own_folder(const std::string& folder, const std::string& machine);

// Takes a lock on a file, which is created if need be. The lock lasts until every copy of the descriptor, in any
// process, is closed. nullopt: another process has it.
Result<std::optional<Fd>> take_lock(const std::string& path);
// Does the same, but waits for the lock; an error after the deadline.
Result<Fd> wait_for_lock(const std::string& path, Deadline deadline);
// Tests the lock without taking it, so that no other process sees it taken.
bool is_locked(const std::string& path);

// FolderWatch waits for changes in a folder: a file there was written, or its writer has died.
class FolderWatch {
 public:
  static Result<FolderWatch> on(const std::string& folder);
  // Watches one more folder.
  Result<void> add(const std::string& folder);

  // Waits until something has changed since the watch began or since the last wait, or until the time is over. Returns
  // true before that. When this user can have no more inotify watches, it returns every few seconds instead. One second
  // after a wake-up it returns once more, for what was only about to happen then.
  bool wait(Duration longest);
  // Makes the next wait() return after seconds at the most: something may change that cannot be watched.
  void look_soon() { is_to_look_soon_ = true; }
  // For loops, which wait themselves until the descriptor can be read, and then take the news; -1: there is none.
  [[nodiscard]] int fd() const { return fd_.get(); }
  void take_news();

 private:
  explicit FolderWatch(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;  // closed: this user has all the inotify watches that the kernel allows
  bool was_woken_ = false;
  bool is_to_look_soon_ = false;
};

}  // namespace hvd::launch
