#include "launcher/service/supervisor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "launcher/process/descendants.h"
#include "launcher/process/detached.h"
#include "launcher/process/other_process.h"
#include "launcher/process/own_process.h"
#include "launcher/service/ticket.h"
#include "runtime/base/machine.h"

namespace hvd::launch {
namespace {

constexpr Duration kLongestWait = std::chrono::hours(1);
// All waiting supervisors meet the same error (a full disk) at the same time; they retry after this long.
constexpr Duration kAfterError = std::chrono::seconds(1);

// Checks one job whose supervisor may be dead. Returns true if it was.
Result<bool> look_after(const StateDir& dir, JobStore& store, const JobRecord& seen) {
  const std::string path = dir.lock_of(seen.uuid);
  if (is_locked(path)) {
    return false;
  }
  HVD_TRY_ASSIGN(const std::optional<Fd> lock, take_lock(path));
  if (!lock) {
    return false;  // another process was faster
  }
  auto found = store.job(seen.id);
  if (found.ok() && !has_ended(found.value().state)) {
    HVD_TRY(store.bury(seen.id, boot_id()));
    found = store.job(seen.id);
  }
  if (!found.ok() && found.error().code() != Code::kNotFound) {
    return found.error();
  }
  if (!found.ok() || has_ended(found.value().state)) {
    forget_start(dir, seen.uuid);
    return true;
  }
  HVD_TRY(start_supervisor(dir, found.value(), *lock));
  return true;
}

// Checks each of the jobs, whatever becomes of one; the error is the first.
Result<void> look_after(const StateDir& dir, JobStore& store, const std::vector<JobRecord>& jobs) {
  bool has_found = false;
  Result<void> outcome;
  for (const JobRecord& job : jobs) {
    const auto was_dead = look_after(dir, store, job);
    has_found = has_found || (was_dead.ok() && was_dead.value());
    if (!was_dead.ok() && outcome.ok()) {
      outcome = was_dead.error();
    }
  }
  if (has_found) {
    dir.wake();
  }
  return outcome;
}

// Removes the files of a `submit` that died before its job had a record.
void sweep(const StateDir& dir, JobStore& store, const std::vector<JobRecord>& active) {
  std::set<std::string> known;
  for (const JobRecord& job : active) {
    known.insert(job.uuid);
  }
  std::set<std::string> left;
  std::error_code failed;
  for (const std::string& folder : {dir.tickets(), dir.locks()}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
      const std::string name = entry.path().filename();
      const std::string uuid(std::string_view(name).substr(0, name.find('.')));
      if (uuid.find('-') != std::string::npos && !known.contains(uuid)) {  // "wake" and "opening" are no uuid
        left.insert(uuid);
      }
    }
  }
  for (const std::string& uuid : left) {
    if (is_locked(dir.lock_of(uuid))) {
      continue;
    }
    if (const auto lock = take_lock(dir.lock_of(uuid)); lock.ok() && lock.value()) {
      // By now the job may have a record, and a supervisor that died since.
      if (const auto is_job = store.is_active(uuid); is_job.ok() && !is_job.value()) {
        forget_start(dir, uuid);
      }
    }
  }
}

// Checks the running jobs and the waiting job after this one, so that every job has somebody who checks it.
Result<void> look_after_neighbours(const StateDir& dir, JobStore& store, std::int64_t id) {
  HVD_TRY_ASSIGN(const std::vector<JobRecord> neighbours, store.neighbours_of(id));
  return look_after(dir, store, neighbours);
}

struct Turn {
  bool is_over = false;
  std::optional<JobRecord> job;
  Duration wait = kLongestWait;
  bool has_failed = false;  // a neighbour could not be helped, or this job is not ready; it is tried again
};

// Refusal says until when it is not the job's turn, as long as no record changes.
struct Refusal {
  std::int64_t version = -1;  // of the records
  Deadline until{TimePoint{}};
};

Result<Turn> ask_for_turn(const StateDir& dir, JobStore& store, std::int64_t id, const Claimant& claimant,
                          const std::function<bool()>& is_ready, Refusal& refusal) {
  Turn turn;
  // A neighbour whose supervisor cannot be started does not keep this job from its turn.
  turn.has_failed = !look_after_neighbours(dir, store, id).ok();
  // Supervisors for which there is no inotify instance ask every few seconds, and there may be hundreds of them.
  HVD_TRY_ASSIGN(const std::int64_t version, store.version());
  if (version == refusal.version && !refusal.until.has_passed()) {
    turn.wait = refusal.until.at() - std::chrono::steady_clock::now();
    return turn;
  }
  const auto own = store.job(id);
  if (!own.ok()) {
    turn.is_over = own.error().code() == Code::kNotFound;
    return turn.is_over ? Result<Turn>(turn) : Result<Turn>(own.error());
  }
  if (own.value().state != ExecutionState::kQueued) {
    turn.is_over = true;
    return turn;
  }
  // Check with a read first: claim() takes SQLite's only write lock, and most calls find that it is not the job's turn.
  HVD_TRY_ASSIGN(const bool may_begin, store.is_turn(id));
  if (may_begin && !is_ready()) {
    turn.has_failed = true;
    return turn;
  }
  if (may_begin) {
    HVD_TRY_ASSIGN(turn.job, store.claim(id, claimant));
  }
  if (turn.job) {
    return turn;  // no later error may lose what was claimed
  }
  HVD_TRY_ASSIGN(const std::int64_t idle_ms, store.clusters().next_idle_ms(own.value().cluster, id));
  if (idle_ms > 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto left = std::chrono::milliseconds(idle_ms) - std::chrono::duration_cast<std::chrono::milliseconds>(now);
    turn.wait = std::clamp<Duration>(left, std::chrono::milliseconds(1), turn.wait);
  }
  refusal = {version, Deadline::after(turn.wait)};
  return turn;
}

}  // namespace

Result<void> start_supervisor(const StateDir& dir, const JobRecord& job, const Fd& lock) {
  HVD_TRY_ASSIGN(const std::string program, own_program());
  const std::string folder = dir.run_of(job.uuid);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error(Code::kResource, Error::from_errno("cannot make the folder " + folder).message());
  }
  const std::string log = folder + "/hvdrun.log";
  const Fd words(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  const Fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!words.is_open() || !nowhere.is_open()) {
    return Error(Code::kResource, Error::from_errno("cannot write " + log).message());
  }
  SpawnOptions options;
  options.argv = {program, kSuperviseWord, dir.root(), std::to_string(job.id)};
  // A supervisor without a ticket records that error itself.
  if (auto ticket = read_ticket(dir.ticket_of(job.uuid)); ticket.ok()) {
    options.environment = std::move(ticket).value().environment;
  }
  options.cwd.assign(1, '/');     // GCC 12 warns of an overlapping copy for = "/"
  options.stdin_fd = lock.get();  // the supervisor inherits the lock as its standard input
  options.stdout_fd = nowhere.get();
  options.stderr_fd = words.get();
  return spawn_detached(std::move(options));
}

Result<void> recover(const StateDir& dir, JobStore& store) {
  HVD_TRY_ASSIGN(const std::vector<JobRecord> active, store.active_jobs());
  const Result<void> outcome = look_after(dir, store, active);
  sweep(dir, store, active);
  return outcome;
}

Result<std::optional<JobRecord>> wait_for_turn(const StateDir& dir, JobStore& store, std::int64_t id,
                                               const std::function<bool()>& is_ready) {
  HVD_TRY_ASSIGN(FolderWatch watch, FolderWatch::on(dir.locks()));
  const Claimant claimant{::getpid(), start_of_process(::getpid()), boot_id()};
  Refusal refusal;
  for (;;) {
    auto turn = ask_for_turn(dir, store, id, claimant, is_ready, refusal);
    if (!turn.ok() && ::access(dir.database().c_str(), F_OK) != 0) {
      return turn.error();  // somebody has removed the whole folder
    }
    if (!turn.ok()) {
      // A disk that is full now may soon have room again, and a waiting job has time.
      std::this_thread::sleep_for(kAfterError);
      continue;
    }
    if (turn.value().is_over || turn.value().job) {
      return std::move(turn).value().job;
    }
    if (turn.value().has_failed) {
      // The attempt has closed a file in the folder, so that the watch would return at once, here and everywhere.
      std::this_thread::sleep_for(std::min(turn.value().wait, kAfterError));
    } else {
      watch.wait(turn.value().wait);
    }
  }
}

void forget_start(const StateDir& dir, const std::string& uuid) {
  remove_ticket(dir.ticket_of(uuid));
  ::unlink(dir.lock_of(uuid).c_str());
}

Fd open_supervisor(const StateDir& dir, const JobRecord& job) {
  if (job.pid <= 0) {
    return {};
  }
  auto process = open_process(job.pid);
  const bool is_it = process.ok() && job.boot == boot_id() && start_of_process(job.pid) == job.pid_start &&
                     is_locked(dir.lock_of(job.uuid));
  return is_it ? std::move(process).value() : Fd();
}

}  // namespace hvd::launch
