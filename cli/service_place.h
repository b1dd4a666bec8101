// ServicePlace opens the service's folder and its records; every command of the service begins with it, and so finds
// jobs whose supervisors died.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/service/engine_jobs.h"
#include "launcher/service/job_store.h"
#include "launcher/service/state_dir.h"
#include "runtime/base/result.h"

namespace hvd::cli {

struct ServicePlace {
  launch::StateDir dir;
  launch::JobStore store;
  launch::EngineJobs engine_jobs;

  // Opens those below $XDG_STATE_HOME/hvdrun and handles jobs whose supervisors are dead. An error of that handling is
  // printed, and the command goes on.
  static Result<ServicePlace> open();
  // Finds a job of the service, or of an engine as it says that the job is now. Where the engine does not answer, that
  // is printed, and the job is as it was known last.
  Result<launch::JobRecord> job(const std::string& reference);
  // Returns a job that was found before, as it is now. An error: it has been removed, or its engine does not answer.
  Result<launch::JobRecord> again(const launch::JobRecord& job);
  // Opens them for a supervisor, without looking for dead ones.
  // `patience`: as of JobStore.
  static Result<ServicePlace> open_at(const std::string& root, Duration patience = launch::Database::kPatience);
};

std::int64_t now_ms();

// Fills in what the cluster says where `flags` say nothing, for a job on these of its nodes.
struct Flags;
Result<void> apply_cluster(const launch::Cluster& cluster, const launch::HostList& nodes, Flags& flags);

}  // namespace hvd::cli
