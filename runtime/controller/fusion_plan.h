// Fusion plan: which ready tensors travel together. Pure: the same input gives the same plan.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/controller/message.h"
#include "runtime/controller/negotiator.h"

namespace hvd {

// A response's names must fit a frame, whatever their lengths.
inline constexpr std::size_t kMaxFusedTensors = 4096;

// Each tensor once. An allreduce takes along later ones of the same dtype, operator and scales (look-ahead: others
// between them stay where they are) as long as the group has at most `limit_bytes`; one that is larger goes alone.
// Nothing else is fused, and 0 fuses nothing. Responses are in the order of their first tensors.
std::vector<Response> plan_fusion(std::vector<Ready> ready, std::size_t limit_bytes);

}  // namespace hvd
