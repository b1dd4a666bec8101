// Makes the Request by which a rank asks the coordinator for the operations that its user has submitted. Pure.
#pragma once

#include <span>

#include "runtime/controller/message.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// For one operation, or for all operations of a group in their order.
Request request_of(std::span<PendingOp* const> ops);
// Whether request_of(ops) equals this one, computed without making it.
bool is_request_of(const Request& request, std::span<PendingOp* const> ops);

}  // namespace hvd
