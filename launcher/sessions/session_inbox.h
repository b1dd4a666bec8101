// SessionInbox opens the numbered messages of a session, which are those about the node's ranks, and calls the sink
// with what each of them says.
//
// An agent is not believed: a message that cannot be read is an error, and so is one about a rank of another node.
// So receivers may use a rank as an index.
//
// Thread: loop only.
#pragma once

#include "launcher/placement/placement.h"
#include "launcher/sessions/session_sink.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class SessionInbox {
 public:
  // `plan` and `sink` must outlive this object.
  SessionInbox(const NodePlan& plan, int job_size, SessionSink& sink) : plan_(plan), job_size_(job_size), sink_(sink) {}

  // Takes the next numbered frame. An error ends the session.
  Result<void> deliver(const Frame& frame) const;

 private:
  // Refuses a rank that is not on this node.
  [[nodiscard]] Result<void> check_rank(int rank) const;
  // Reads a message about one rank, and tells the sink.
  template <typename Message>
  Result<void> of_rank(const Frame& frame, void (SessionSink::*tell)(const Message&)) const;

  const NodePlan& plan_;
  const int job_size_;
  SessionSink& sink_;
};

}  // namespace hvd::launch
