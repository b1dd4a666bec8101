// These functions start the engine or the gang of a step whose agents another launcher starts.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/engines/engine.h"
#include "launcher/engines/gang.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/dial_back.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// EngineSetup is the engine that starts the agents for us, and the transport by which they connect.
struct EngineSetup {
  std::unique_ptr<EngineOrphans> orphans;
  std::unique_ptr<DialBack> dial_back;
  std::unique_ptr<Engine> engine;
};

bool has_only_local_hosts(const Placement& placement);

// Empty where the job has no such engine.
Result<EngineSetup> engine_of(EventLoop& loop, const JobSpec& job, const Placement& placement, Log& log);

// Starts the gang of a job whose agents an engine starts, with the placement known only then; null: it has none.
// `say` gets texts for the user, also while the job runs.
Result<std::unique_ptr<Gang>> gang_of(EventLoop& loop, const JobSpec& job, const Placement& placement, Log& log,
                                      const std::function<void(const std::string&)>& say);

// Reports why an engine could start no rank of the job, and returns hvdrun's exit code, as for any job that does not
// start. `signo` is the signal that ended the start; 0: none has.
int report_no_start(const JobSpec& job, const Error& why, int signo);

}  // namespace hvd::launch
