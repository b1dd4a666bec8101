// CheckResult: what was found out about the hosts of a check and the links between them. Value types; made by
// CheckRunner, judged by findings.h, shown by launcher/report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/check_messages.h"
#include "launcher/check/clock_offset.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct CheckedHost {
  NodePlan plan;
  std::string transport;              // "ssh"
  std::optional<Error> error;         // why it was not reached, or how it was lost
  Duration reach_time{};              // until its agent had answered
  std::vector<std::string> notices;   // what was said on the way, as "using the system's ssh, because ..."
  Opened opened;                      // of a host that was reached, as is all that follows
  std::optional<ReadyMessage> ready;  // nothing: it was not reached
  std::optional<ClockOffset> clock;   // nothing: it did not answer in time, as with all that follows
  std::optional<SystemSurvey> system;
  std::optional<SoftwareSurvey> software;
  std::string address;  // at which the other hosts' ranks would call it; empty: not known

  [[nodiscard]] const std::string& name() const { return plan.host.name; }
};

// One direction between two hosts, by their indexes.
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
  bool has_all_pairs = true;   // else each host and the next, in a ring
  bool names_program = false;  // the user has named the program, else Python is looked for
  bool wants_mpirun = false;
  int interrupted_by = 0;  // a signal's number; 0: it was not
  Duration took{};
};

}  // namespace hvd::launch
