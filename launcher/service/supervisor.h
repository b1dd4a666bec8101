// A supervisor is a process that belongs to one job from its submission to its end, whatever happens to the terminal.
// It holds the job's lock, waits until the job is given its nodes, runs it as `-f` would, and records how it ends.
//
// There is no central process. Each waiting supervisor checks the running ones and one other waiting one, and every
// command checks all of them. The process that finds one dead records that (JobStore::bury), and starts another where
// the job goes on.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/service/job_record.h"
#include "launcher/service/job_store.h"
#include "launcher/service/state_dir.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

// Starts a job's supervisor, which takes over `lock`, the job's lock. Its environment comes from the ticket.
Result<void> start_supervisor(const StateDir& dir, const JobRecord& job, const Fd& lock);

// Finds the jobs whose supervisors are dead and marks each as failed or gives it a new supervisor. It also removes the
// files that `submit` processes left when they died.
Result<void> recover(const StateDir& dir, JobStore& store);

// Runs in the supervisor of a job and waits until the job has its nodes. `is_ready` is asked when its turn has come;
// after false, again a second later. nullopt: it was stopped or removed.
Result<std::optional<JobRecord>> wait_for_turn(const StateDir& dir, JobStore& store, std::int64_t id,
                                               const std::function<bool()>& is_ready);

// Removes what only a job that goes on needs. The caller holds the job's lock.
void forget_start(const StateDir& dir, const std::string& uuid);

// Opens the process of a job's supervisor as a pidfd, which cannot come to mean another process; closed: it is dead.
Fd open_supervisor(const StateDir& dir, const JobRecord& job);

}  // namespace hvd::launch
