// ReduceLoops: the loops of reduce_kernels.h as built for one kind of processor. All give the same results, bit for
// bit.
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

// Each is there if it was built (portable always is: on ARM it uses NEON), and may be called if this processor has what
// its name says.
ReduceLoops reduce_loops_portable();
ReduceLoops reduce_loops_avx2();
ReduceLoops reduce_loops_avx512();

// Those that this processor runs, the best first.
std::vector<ReduceLoops> supported_reduce_loops();

}  // namespace hvd
