// The typed loops over flat memory; no other code looks inside elements. float16 and bfloat16 are computed in float32
// and rounded to nearest even after each step. For bool, sum and max are "or", min and product are "and".
//
// Pure functions. Pointers need only the alignment of their element.
#pragma once

#include <cstddef>

#include "runtime/algo/reduce_turn.h"
#include "runtime/core/dtype.h"
#include "runtime/core/scale.h"

namespace hvd {

// Does all of a turn, in an order that the loop chooses. `op` is neither kAverage nor kAdasum. Integers wrap.
void reduce_turn(const ReduceTurn& turn, Dtype dtype, ReduceOp op);

// Computes into[i] = first[i] OP second[i]; `into` is one of them, or overlaps neither. `op` as above.
void reduce_two(void* into, const void* first, const void* second, std::size_t count, Dtype dtype, ReduceOp op);

// Computes into[i] = into[i] OP from[i], likewise.
void reduce_into(void* into, const void* from, std::size_t count, Dtype dtype, ReduceOp op);

// Computes data[i] = data[i] * factor / divisor. 16-bit floats (rounded once) and float32 are computed in float32,
// everything else in double. Integers are truncated toward zero (Horovod's rule: -3 * 0.5 is -1); int64 beyond 2^53,
// and averages of int64, are exact. A scale of one does nothing.
void scale_in_place(void* data, std::size_t count, Dtype dtype, Scale scale);

}  // namespace hvd
