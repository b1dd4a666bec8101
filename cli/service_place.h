// What every command of the service begins with: where its records are, and the records, looked after.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/service/state_dir.h"
#include "launcher/service/store.h"
#include "runtime/base/result.h"

namespace hvd::cli {

struct ServicePlace {
  launch::StateDir dir;
  launch::Store store;

  // Below $XDG_STATE_HOME/hvdrun. Jobs whose supervisors are dead are found; what is wrong with that is told, and no
  // reason not to go on.
  static Result<ServicePlace> open();
  // As a supervisor has it.
  static Result<ServicePlace> open_at(const std::string& root);
};

std::int64_t now_ms();

// `flags` without what the cluster says where they do not, on these of its nodes.
struct Flags;
Result<void> apply_cluster(const launch::Cluster& cluster, const launch::HostList& nodes, Flags& flags);

}  // namespace hvd::cli
