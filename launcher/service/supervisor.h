// Supervisors: the process that a job has of its own, from its submission to its end, whatever becomes of the terminal.
// It holds the job's lock, waits until the job is given its nodes, runs it as `-f` would, and writes what becomes of
// it.
//
// Nobody rules over them. Each that waits looks after those that run and after one other that waits, and every command
// looks after all: whoever finds one dead buries it (Store::bury), and starts another where the job goes on.
#pragma once

#include <optional>
#include <string>

#include "launcher/service/job_record.h"
#include "launcher/service/state_dir.h"
#include "launcher/service/store.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

// `lock` is the job's, and its supervisor's from now on. Its environment is that of the ticket.
Result<void> start_supervisor(const StateDir& dir, const JobRecord& job, const Fd& lock);

// Of all jobs that have not ended, those whose supervisors are dead; and removes what submits that died have left.
Result<void> recover(const StateDir& dir, Store& store);

// In the supervisor of a job: until it has its nodes. nullopt: it was stopped or removed.
Result<std::optional<JobRecord>> wait_for_turn(const StateDir& dir, Store& store, std::int64_t id);

// Removes what only a job that goes on needs. Its lock is held by whoever calls.
void forget_start(const StateDir& dir, const std::string& uuid);

// The number of a job's supervisor as a descriptor that names it for good; closed: it does not live.
Fd open_supervisor(const StateDir& dir, const JobRecord& job);

}  // namespace hvd::launch
