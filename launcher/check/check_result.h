// CheckResult is what a check found out about the hosts and the links between them. Value types; CheckRunner makes
// them, findings.h judges them, launcher/report shows them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/check/clock_offset.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"
#include "launcher/wire/check_messages.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct CheckedHost {
  NodePlan plan;
  std::string transport;              // "ssh"
  std::optional<Error> error;         // why it was not reached, or how it was lost
  Duration reach_time{};              // from the start until its agent answered
  std::vector<std::string> notices;   // what was reported on the way: "using the system's ssh, because ..."
  Opened opened;                      // valid, as all that follows, for a host that was reached
  std::optional<ReadyMessage> ready;  // nothing: it was not reached
  std::optional<ClockOffset> clock;   // nothing, as with all that follows: no answer in time
  std::optional<SystemSurvey> system;
  std::optional<SoftwareSurvey> software;
  std::string address;  // at which the other hosts' ranks would connect to it; empty: not known

  [[nodiscard]] const std::string& name() const { return plan.host.name; }
};

// CheckedLink is one direction between two hosts, by their indexes.
struct CheckedLink {
  int from = 0;
  int to = 0;
  bool was_tried = false;
  ProbeStage stage = ProbeStage::kConnect;
  std::string error;            // empty: it works
  Duration round_trip{};        // zero: not measured
  double bytes_per_second = 0;  // 0: not measured

  [[nodiscard]] bool works() const { return was_tried && error.empty(); }
};

struct CheckResult {
  std::vector<CheckedHost> hosts;
  std::vector<CheckedLink> links;
  bool has_all_pairs = true;   // false: each host and the next, in a ring
  bool names_program = false;  // the user has named the program; false: Python is looked for
  bool wants_mpirun = false;
  GpuMode gpus = GpuMode::kLocal;
  // The program or script that --sync would not bring; empty: it brings all that is named, or is not given.
  std::string not_in_folder;
  int interrupted_by = 0;  // a signal's number; 0: not interrupted
  Duration took{};
};

}  // namespace hvd::launch
