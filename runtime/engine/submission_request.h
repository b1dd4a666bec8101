// What a rank says to the coordinator of the operations that its user has submitted. Pure.
#pragma once

#include <span>

#include "runtime/controller/message.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

// Of one operation, or of all of a group in their order.
Request request_of(std::span<PendingOp* const> ops);
// Whether request_of(ops) is this one, found without making it.
bool is_request_of(const Request& request, std::span<PendingOp* const> ops);

}  // namespace hvd
