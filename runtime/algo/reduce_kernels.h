// Typed loops over flat memory: the only place that looks inside elements. float16 and bfloat16 are computed in
// float32 and rounded to nearest even after each step. bool: sum and max are "or", min and product are "and".
//
// Pure functions. Pointers need the alignment of their element only.
#pragma once

#include <cstddef>

#include "runtime/algo/reduce_turn.h"
#include "runtime/core/dtype.h"
#include "runtime/core/scale.h"

namespace hvd {

// All of a turn, in an order of its own. `op` is neither kAverage nor kAdasum. Integers wrap.
void reduce_turn(const ReduceTurn& turn, Dtype dtype, ReduceOp op);

// into[i] = first[i] OP second[i]; `into` may be one of them, and is else apart. `op` as above.
void reduce_two(void* into, const void* first, const void* second, std::size_t count, Dtype dtype, ReduceOp op);

// into[i] = into[i] OP from[i], likewise.
void reduce_into(void* into, const void* from, std::size_t count, Dtype dtype, ReduceOp op);

// data[i] = data[i] * factor / divisor: 16-bit floats (rounded once) and float32 in float32, everything else in double,
// integers truncated toward zero (Horovod's rule: -3 * 0.5 is -1); int64 beyond 2^53, and its averages, without
// rounding. A scale of one does nothing.
void scale_in_place(void* data, std::size_t count, Dtype dtype, Scale scale);

}  // namespace hvd
