// BitRequests is how this rank asks for tensors of one process set that all its ranks know: by one bit each, at the
// position that the coordinator has assigned (controller/known_wire.h). It remembers which operations wait for the
// answer to which bit.
// Thread: engine only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/controller/response_cache.h"
#include "runtime/coordinate/pending_ops.h"
#include "runtime/coordinate/step_ring.h"

namespace hvd {

class BitRequests {
 public:
  // The process set has `size` ranks.
  BitRequests(int process_set, int size) : cache_(size) { unsent_.process_set = process_set; }

  // Asks for these operations (one, or all of a group) if they are known; returns whether it did.
  bool ask(std::span<PendingOp* const> ops);
  // The bits that are not sent yet; null if there are none. note_sent() comes after the sending.
  const KnownBits* unsent();
  void note_sent() { unsent_.bits.clear(); }

  // Adds a step for each response to these bits, which all ranks run now. False: this rank has not asked for them.
  [[nodiscard]] bool add_steps(const KnownHits& hits, StepRing& steps);
  // Clears the bits of operations that are answered by name, because other ranks had asked for them by message.
  void note_answered(const Response& response, const PendingOps& pending);
  // Takes in new contents of positions. Returns what this rank must ask for again: its bits for the old contents came
  // too late to count.
  Result<std::vector<Request>> remember(std::span<const Remembered> news, const PendingOps& pending);

 private:
  void add_step(std::span<const int> positions, StepRing& steps);

  ResponseCache cache_;
  std::vector<std::vector<PendingOp*>> asked_;  // by position: what is asked for, and not answered yet
  KnownBits unsent_;
};

}  // namespace hvd
