// StandIn: what a rank that has joined runs in place of an allreduce that it has not asked for: zeros of the same size,
// whose result is thrown away; and what a rank runs of a new process set for which its members have asked. Functions on
// values; thread: engine only.
#pragma once

#include <cstddef>

#include "runtime/base/result.h"
#include "runtime/controller/message.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// For response.names[index], which must have its count; kResource when there is no memory.
Result<PendingOp> make_stand_in(const Response& response, std::size_t index);
// For a response with numbers.
PendingOp make_set_stand_in(const Response& response);

}  // namespace hvd
