// ReduceLoops are the loops of reduce_kernels.h, compiled for one instruction set, so that one library runs well on
// every processor. All give the same results, bit for bit.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/algo/reduce_turn.h"
#include "runtime/core/dtype.h"
#include "runtime/core/scale.h"

namespace hvd {

struct ReduceLoops {
  const char* name;
  void (*reduce_turn)(const ReduceTurn& turn, Dtype dtype, ReduceOp op);
  void (*scale_in_place)(void* data, std::size_t count, Dtype dtype, Scale scale);
};

// Each one exists if it was built (portable always is; on ARM it uses NEON). It may be called only if this processor
// supports the instruction set of its name.
ReduceLoops reduce_loops_portable();
ReduceLoops reduce_loops_avx2();
ReduceLoops reduce_loops_avx512();

// Returns those that this processor supports, the best first.
std::vector<ReduceLoops> supported_reduce_loops();

}  // namespace hvd
