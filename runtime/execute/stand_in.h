// These functions make the operations that a rank runs without having asked for them. A rank that has joined runs an
// allreduce on zeros of the same size and discards the result. A rank also runs the addition of a process set for which
// only the members have asked. They work on values. Thread: engine only.
#pragma once

#include <cstddef>

#include "runtime/base/result.h"
#include "runtime/controller/message.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// For response.names[index], whose count must be present. kResource: there is not enough memory.
Result<PendingOp> make_stand_in(const Response& response, std::size_t index);
// Makes one for a response that contains the ranks of a process set.
PendingOp make_set_stand_in(const Response& response);

}  // namespace hvd
