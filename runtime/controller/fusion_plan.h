// Fusion plan: which ready tensors travel together. Pure: the same input gives the same plan.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/controller/message.h"
#include "runtime/controller/negotiator.h"

namespace hvd {

// Each tensor once. Tensors of one groupable kind, dtype, operator and scales, all on devices or none, travel together
// as long as they have at most `limit_bytes`: one takes along later ones (look-ahead: others between them stay where
// they are). A larger one goes alone, and 0 fuses nothing. The tensors of a group always travel together whatever the
// limit says, but for those of another dtype or place, which follow at once; with others only where `fuses_groups`.
// Responses are in the order of their first tensors. `size`: ranks of the job.
std::vector<Response> plan_fusion(std::vector<Ready> ready, std::size_t limit_bytes, int size,
                                  bool fuses_groups = true);

}  // namespace hvd
