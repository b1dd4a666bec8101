// The events that wake the engine: submissions, frames, notices, ends of links, the request to leave. See
// engine_impl.h.
#include "runtime/coordinate/submission_request.h"
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

// How long a leaving rank waits for the others to run what was decided and to take in the message; and, if the job has
// failed already, for the others to take in that message; none is waited for where each rank's agent has told it.
constexpr Duration kLeaveTime = std::chrono::seconds(5);
constexpr Duration kLeaveAfterFailureTime = std::chrono::seconds(1);

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

// Known tensors are asked for by bits, which are sent first: a join or a change that is asked for later must come
// later.
void Engine::Impl::on_submissions() {
  std::vector<Request> requests;
  taken_.clear();
  queue_->take(taken_);
  for (std::size_t begin = 0, end = 0; begin < taken_.size(); begin = end) {
    end = begin + 1 + taken_[begin]->group.size();
    asked_.clear();
    for (std::size_t i = begin; i < end; ++i) {
      const Submission& what = taken_[i]->what;
      asked_.push_back(pending_.emplace(OpKey{what.process_set, what.name}, std::move(taken_[i])).first->second.get());
    }
    const auto set = sets_.find(asked_.front()->what.process_set);
    const bool is_known = set != sets_.end() && set->second.executor && ask_by_bit(set->second, asked_);
    if (!is_known) {
      requests.push_back(request_of(asked_));
    }
    if (set != sets_.end() && set->second.counters != nullptr) {
      set->second.counters->add_asked(is_known ? 0 : asked_.size(), is_known ? asked_.size() : 0);
    }
  }
  frames_.clear();
  send_bits();
  if (is_coordinator()) {
    // The submit queue has refused what the coordinator would refuse: a name that is already pending.
    const Result<void> added = ask(0, std::move(requests));
    HVD_CHECK(added.ok());
  } else if (!over_) {
    append_requests(frames_, requests);
    send_frames();
  }
}

// Sends the frames to all peers of this rank.
void Engine::Impl::send_frames() {
  if (!frames_.empty()) {
    const std::size_t peers = channel_->send(frames_);
    counters_.note_sent(peers, peers * frames_.size());
  }
}

void Engine::Impl::on_notice() {
  if (const auto notice = parts_.store->poll_notice()) {
    is_told_ = true;
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
    return {};  // a late message of a job that is over
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
  if (frame.type == control_wire::kBits) {
    HVD_TRY(decode_bits(frame.body, bits_in_));
    return is_shutdown_announced_ ? Result<void>() : coordinator_->add_known(rank, bits_in_);
  }
  if (frame.type != control_wire::kRequests) {
    return Error(Code::kProtocol, "control frame of unknown type " + std::to_string(frame.type));
  }
  HVD_TRY_ASSIGN(std::vector<Request> requests, decode_requests(frame.body));
  return ask(rank, std::move(requests));
}

// Coordinator: adds a rank's requests. A request that comes after the end was announced is dropped; it fails on its own
// rank when that reaches the end.
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
    steps_.push().shutdown_by = by_rank;
    return {};
  }
  if (frame.type == control_wire::kHits) {
    HVD_TRY(decode_hits(frame.body, hits_in_));
    return take_hits(hits_in_);
  }
  if (frame.type == control_wire::kRemember) {
    HVD_TRY_ASSIGN(const RememberedBatch batch, decode_remembered(frame.body));
    return remember(batch.process_set, batch.items);
  }
  if (frame.type != control_wire::kResponses) {
    return Error(Code::kProtocol, "control frame of unknown type " + std::to_string(frame.type));
  }
  HVD_TRY_ASSIGN(std::vector<Response> responses, decode_responses(frame.body, parts_.map.size));
  for (Response& response : responses) {
    note_answered(response);
    steps_.push().response = std::move(response);
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
    suspect(why, rank);
  }
}

void Engine::Impl::on_stop() {
  is_leaving_ = true;
  const Duration after_failure = is_told_ ? Duration::zero() : kLeaveAfterFailureTime;
  loop_->after(over_ && !is_orderly_ ? after_failure : kLeaveTime, [this] {
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
