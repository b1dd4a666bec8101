// Fusion plan: which ready tensors travel together in one collective. Pure: the same input gives the same plan.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/controller/message.h"
#include "runtime/controller/negotiator.h"

namespace hvd {

// Plans each tensor once. Tensors of one groupable kind, dtype, operator and scales, all on devices or none, travel
// together up to `limit_bytes` in all. A tensor may take along later ones; the others between them keep their place
// (look-ahead). A larger tensor travels alone, and limit 0 fuses nothing. The tensors of a group always travel
// together, whatever the limit says, except those of another dtype or place, which follow at once. They travel with
// tensors outside the group only if `fuses_groups`. Responses are in the order of their first tensors. `size` is the
// number of ranks of the job.
std::vector<Response> plan_fusion(std::vector<Ready> ready, std::size_t limit_bytes, int size,
                                  bool fuses_groups = true);

}  // namespace hvd
