// What wakes the engine: submissions, frames, notices, ends of links, the wish to leave. See engine_impl.h.
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

// How long a leaving rank waits for the others to run what was decided and to take the news; and, when the job has
// failed already, for the others to take that.
constexpr Duration kLeaveTime = std::chrono::seconds(5);
constexpr Duration kLeaveAfterFailureTime = std::chrono::seconds(1);

Request request_of(const Submission& what) {
  Request request;
  request.kind = what.kind;
  request.process_set = what.process_set;
  request.name = what.name;
  request.numbers = what.numbers;
  if (has_no_tensor(what.kind)) {
    return request;
  }
  request.dtype = what.dtype;
  request.shape = what.shape;
  request.shared_at = what.shared_at;
  request.is_device = what.device >= 0;
  if (is_reduction(what.kind)) {
    request.op = what.op;
    request.prescale = what.prescale;
    request.postscale = what.postscale;
  } else if (what.kind == OpKind::kBroadcast) {
    request.root_rank = what.root_rank;
  }
  return request;
}

}  // namespace

void Engine::Impl::on_wake() {
  queue_->quiet();
  on_submissions();
  if (const auto failed = devices_->take_error()) {
    const Error why = failed->with_context("rank " + std::to_string(parts_.map.rank));
    why.code() == Code::kLostPeer ? suspect(why) : end_job(why);
  }
  if (stop_.load() && !is_leaving_) {
    on_stop();
  }
}

void Engine::Impl::on_submissions() {
  std::vector<Request> requests;
  std::size_t more_of_group = 0;
  for (PendingOp& op : queue_->take()) {
    if (more_of_group > 0) {
      requests.back().group.push_back(
          {op.what.name, op.what.dtype, op.what.shape, op.what.shared_at, op.what.device >= 0});
      --more_of_group;
    } else {
      requests.push_back(request_of(op.what));
      more_of_group = op.what.group.size();
    }
    std::string key = key_of(op.what.process_set, op.what.name);
    pending_.emplace(std::move(key), std::move(op));
  }
  if (is_coordinator()) {
    // The submit queue has refused what the coordinator would: a name that is pending already.
    const Result<void> added = ask(0, std::move(requests));
    HVD_CHECK(added.ok());
  } else if (!over_) {
    std::string frames;
    append_requests(frames, requests);
    channel_->send(frames);
  }
}

void Engine::Impl::on_notice() {
  if (const auto notice = parts_.store->poll_notice()) {
    end_job(Error(Code::kLostPeer, notice->cause));
  }
}

void Engine::Impl::on_frame(int rank, const Frame& frame) {
  if (auto taken = take_frame(rank, frame); !taken.ok()) {
    end_job(taken.error().with_context("rank " + std::to_string(rank)));
  }
}

Result<void> Engine::Impl::take_frame(int rank, const Frame& frame) {
  if (frame.type == control_wire::kGoodbye) {
    has_said_goodbye_[static_cast<std::size_t>(rank)] = true;
    return {};
  }
  if (over_) {
    return {};  // late news of a job that is over
  }
  if (frame.type == control_wire::kAbort) {
    HVD_TRY_ASSIGN(const std::string cause, decode_abort(frame.body));
    end_job(Error(Code::kLostPeer, cause));
    return {};
  }
  return is_coordinator() ? take_frame_from_rank(rank, frame) : take_frame_from_coordinator(frame);
}

Result<void> Engine::Impl::take_frame_from_rank(int rank, const Frame& frame) {
  if (frame.type == control_wire::kLeave) {
    announce_shutdown(rank);
    return {};
  }
  if (frame.type != control_wire::kRequests) {
    return Error(Code::kProtocol, "control frame of unknown type " + std::to_string(frame.type));
  }
  HVD_TRY_ASSIGN(std::vector<Request> requests, decode_requests(frame.body));
  return ask(rank, std::move(requests));
}

// Coordinator. What is asked for after the end was announced fails where it is pending, when the end is reached there.
Result<void> Engine::Impl::ask(int rank, std::vector<Request> requests) {
  if (is_shutdown_announced_) {
    return {};
  }
  for (Request& request : requests) {
    if (is_traced()) {
      trace_request(rank, request);
    }
    HVD_TRY(coordinator_->add(rank, std::move(request)));
  }
  return {};
}

Result<void> Engine::Impl::take_frame_from_coordinator(const Frame& frame) {
  if (frame.type == control_wire::kShutdown) {
    HVD_TRY_ASSIGN(const int by_rank, decode_shutdown(frame.body, parts_.map.size));
    steps_.push_back({{}, by_rank});
    return {};
  }
  if (frame.type != control_wire::kResponses) {
    return Error(Code::kProtocol, "control frame of unknown type " + std::to_string(frame.type));
  }
  HVD_TRY_ASSIGN(std::vector<Response> responses, decode_responses(frame.body, parts_.map.size));
  for (Response& response : responses) {
    steps_.push_back({std::move(response), std::nullopt});
  }
  return {};
}

void Engine::Impl::on_link_end(int rank, const Error& why) {
  if (over_ || has_said_goodbye_[static_cast<std::size_t>(rank)]) {
    return;
  }
  if (why.code() == Code::kProtocol) {
    end_job(why);
  } else {
    suspect(why);
  }
}

void Engine::Impl::on_stop() {
  is_leaving_ = true;
  loop_->after(over_ && !is_orderly_ ? kLeaveAfterFailureTime : kLeaveTime, [this] {
    is_leave_overdue_ = true;
    end_job(Error(Code::kLostPeer, "Horovod has been shut down by rank " + std::to_string(parts_.map.rank)));
  });
  if (over_) {
    return;
  }
  if (is_coordinator()) {
    announce_shutdown(0);
  } else {
    channel_->send(make_frame(control_wire::kSpec, control_wire::kLeave, {}));
  }
}

}  // namespace hvd
