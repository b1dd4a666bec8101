#include "runtime/coordinate/step_source.h"

#include "runtime/coordinate/submission_request.h"
#include "runtime/link/shm_segment.h"

namespace hvd {

Result<std::unique_ptr<StepSource>> StepSource::create(const Settings& settings, const Parts& parts,
                                                       ControlChannel::Handlers handlers,
                                                       std::function<void(const Error&)> on_stall) {
  std::unique_ptr<StepSource> source(new StepSource(parts));
  HVD_TRY(source->open_channel(std::move(handlers)));
  if (source->is_coordinator()) {
    source->open_coordinator(settings, std::move(on_stall));
  }
  return source;
}

// Opens the links to the coordinator, or from it to all ranks; within the coordinator's node they use shared memory.
Result<void> StepSource::open_channel(ControlChannel::Handlers handlers) {
  const RankMap& map = parts_.map;
  ShmSegment* shm = parts_.mesh == nullptr || map.node_index != 0 ? nullptr : parts_.mesh->shm().get();
  std::vector<ControlChannel::Peer> peers;
  for (int rank = 0; rank < map.size; ++rank) {
    if (rank == map.rank || (!is_coordinator() && rank != 0)) {
      continue;
    }
    ControlChannel::Peer peer{rank, parts_.mesh->control_fd(rank), std::nullopt, parts_.mesh->control_filter(rank)};
    if (shm != nullptr && map.node_of_rank[static_cast<std::size_t>(rank)] == 0) {
      // The coordinator leads the first node, whose ranks are the first ones.
      const int other = is_coordinator() ? rank : map.local_rank;
      ShmRing up = shm->ring_to_leader(other);
      ShmRing down = shm->ring_from_leader(other);
      peer.lane = is_coordinator() ? ControlChannel::Lane{up, down, shm->bell(rank)}
                                   : ControlChannel::Lane{down, up, shm->bell(0)};
    }
    peers.push_back(peer);
  }
  const auto bell = shm == nullptr ? std::nullopt : std::optional(shm->bell(map.local_rank));
  HVD_TRY_ASSIGN(channel_, ControlChannel::create(parts_.loop, peers, bell, std::move(handlers)));
  return {};
}

void StepSource::open_coordinator(const Settings& settings, std::function<void(const Error&)> on_stall) {
  const Coordinator::Options& options = settings.decisions;
  coordinator_ = std::make_unique<Coordinator>(parts_.loop, options);
  coordinator_->listen({[this](int rank, const Request& request) {
                          if (parts_.trace.is_on()) {
                            parts_.trace.asked(rank, request);
                          }
                        },
                        [this](const Request& request) {
                          if (parts_.trace.is_on()) {
                            const ProcessSet* set = parts_.sets.find(request.process_set);
                            parts_.trace.ready(request, set != nullptr && set->executor.has_value());
                          }
                        }});
  if (parts_.map.size > 1 && StallWatch(settings.stall).is_on()) {
    stall_timer_.emplace(settings.stall, parts_.loop, *coordinator_, answer_calls_, parts_.log, std::move(on_stall));
  }
  if (options.autotune.is_on) {
    autotune_log_.emplace(settings.autotune_log, parts_.map.node_count > 1, options.cache_capacity > 0, parts_.log);
  }
}

void StepSource::ask_for_submissions() {
  std::vector<Request> requests;
  taken_.clear();
  parts_.queue.take(taken_);
  for (std::size_t begin = 0, end = 0; begin < taken_.size(); begin = end) {
    end = begin + 1 + taken_[begin]->group.size();
    asked_.clear();
    for (std::size_t i = begin; i < end; ++i) {
      asked_.push_back(parts_.pending.add(std::move(taken_[i])));
    }
    ProcessSet* set = parts_.sets.find(asked_.front()->what.process_set);
    const bool is_known = set != nullptr && set->bits && set->bits->ask(asked_);
    if (!is_known) {
      requests.push_back(request_of(asked_));
    }
    if (set != nullptr && set->counters != nullptr) {
      set->counters->add_asked(is_known ? 0 : asked_.size(), is_known ? asked_.size() : 0);
    }
  }
  frames_.clear();
  send_bits();
  if (is_coordinator()) {
    // The submit queue has refused what the coordinator would refuse: a name that is already pending.
    const Result<void> added = ask(0, std::move(requests));
    HVD_CHECK(added.ok());
  } else if (!is_closed_) {
    append_requests(frames_, requests);
    send_frames();
  }
}

void StepSource::send_bits() {
  parts_.sets.for_each_own([this](ProcessSet& set) {
    const KnownBits* bits = set.bits->unsent();
    if (bits == nullptr) {
      return;
    }
    if (!is_coordinator()) {
      append_bits(frames_, *bits);
    } else if (!is_end_announced_) {
      const Result<void> added = coordinator_->add_known(0, *bits);
      HVD_CHECK(added.ok());  // the submit queue has refused what the coordinator would refuse
    }
    set.bits->note_sent();
  });
}

// Sends the frames to all peers of this rank.
void StepSource::send_frames() {
  if (!frames_.empty()) {
    const std::size_t peers = channel_->send(frames_);
    parts_.counters.note_sent(peers, peers * frames_.size());
  }
}

Result<void> StepSource::take(int rank, const Frame& frame) {
  return is_coordinator() ? take_from_rank(rank, frame) : take_from_coordinator(frame);
}

Result<void> StepSource::take_from_rank(int rank, const Frame& frame) {
  if (frame.type == control_wire::kLeave) {
    announce_end(rank);
    return {};
  }
  if (frame.type == control_wire::kAnswer) {
    HVD_TRY_ASSIGN(const AnswerCall call, decode_answer(frame.body));
    return call_for(rank, call);
  }
  if (frame.type == control_wire::kBits) {
    HVD_TRY(decode_bits(frame.body, bits_in_));
    return is_end_announced_ ? Result<void>() : coordinator_->add_known(rank, bits_in_);
  }
  if (frame.type != control_wire::kRequests) {
    return Error(Code::kProtocol, "control frame of unknown type " + std::to_string(frame.type));
  }
  HVD_TRY_ASSIGN(std::vector<Request> requests, decode_requests(frame.body));
  return ask(rank, std::move(requests));
}

// A leader that calls gets its own call back too: it may have answered a round by now, of which a partner has not
// heard.
Result<void> StepSource::call_for(int rank, const AnswerCall& call) {
  std::vector<int> to = {0};
  if (is_coordinator()) {
    // A set that is removed has no rounds any more, on no rank that waits.
    if (!coordinator_->has_set(call.process_set) || !answer_calls_.note(rank, call, parts_.loop.clock().now())) {
      return {};
    }
    to = answer_calls_.leaders_among(coordinator_->ranks_of(call.process_set));
  }
  frames_.clear();
  append_answer(frames_, call);
  const std::size_t peers = channel_->send_to_idle(to, frames_);
  parts_.counters.note_sent(peers, peers * frames_.size());
  return is_coordinator() && to.front() == 0 ? answer(call) : Result<void>();
}

// Where the program has asked for the set's removal, other ranks may have left the set already.
Result<void> StepSource::answer(const AnswerCall& call) {
  auto answered = parts_.sets.answer(call);
  const bool is_explained =
      !answered.ok() && answered.error().code() == Code::kLostPeer && parts_.queue.has_ended(call.process_set);
  return is_explained ? Result<void>() : answered;
}

// Coordinator: adds a rank's requests. A request that comes after the end was announced is dropped; it fails on its own
// rank when that reaches the end.
Result<void> StepSource::ask(int rank, std::vector<Request> requests) {
  if (is_end_announced_) {
    return {};
  }
  for (Request& request : requests) {
    if (parts_.trace.is_on()) {
      parts_.trace.asked(rank, request);
    }
    HVD_TRY(coordinator_->add(rank, std::move(request)));
  }
  return {};
}

Result<void> StepSource::take_from_coordinator(const Frame& frame) {
  if (frame.type == control_wire::kShutdown) {
    HVD_TRY_ASSIGN(const int by_rank, decode_shutdown(frame.body, parts_.map.size));
    steps_.push().shutdown_by = by_rank;
    return {};
  }
  if (frame.type == control_wire::kAnswer) {
    HVD_TRY_ASSIGN(const AnswerCall call, decode_answer(frame.body));
    return answer(call);
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
    add_step(std::move(response));
  }
  return {};
}

// All ranks do these now.
Result<void> StepSource::take_hits(const KnownHits& hits) {
  ProcessSet* set = parts_.sets.find(hits.process_set);
  if (set != nullptr && !set->executor) {
    return {};  // of a set without this rank
  }
  if (set == nullptr || !set->bits->add_steps(hits, steps_)) {
    return Error(Code::kProtocol, "the coordinator ordered what rank " + std::to_string(parts_.map.rank) +
                                      " has not asked for in process set " + std::to_string(hits.process_set));
  }
  return {};
}

Result<void> StepSource::remember(int process_set, std::span<const Remembered> news) {
  ProcessSet* set = parts_.sets.find(process_set);
  if (set == nullptr || !set->executor) {
    return {};  // of a set without this rank
  }
  HVD_TRY_ASSIGN(const std::vector<Request> again, set->bits->remember(news, parts_.pending));
  HVD_CHECK(again.empty() || !is_coordinator());  // the coordinator's own bits are never late
  set->counters->add_asked(again.size(), 0);
  frames_.clear();
  append_requests(frames_, again);
  send_frames();
  return {};
}

void StepSource::add_step(Response response) {
  if (ProcessSet* set = parts_.sets.find(response.process_set); set != nullptr && set->bits) {
    set->bits->note_answered(response, parts_.pending);
  }
  steps_.push().response = std::move(response);
}

void StepSource::decide() {
  if (!is_coordinator() || is_end_announced_) {
    return;
  }
  if (stall_timer_) {
    stall_timer_->count_decision();
  }
  if (is_closed_) {
    return;
  }
  announce(coordinator_->decide());
  if (autotune_log_) {
    autotune_log_->report(coordinator_->take_tuning_news());
  }
}

// This rank's current step may take long, but process sets without it need not wait for that.
void StepSource::decide_for_others() {
  if (is_coordinator() && parts_.sets.size() > 1 && !is_end_announced_ && !is_closed_) {
    announce(coordinator_->decide_for_others());
  }
}

// Sends the ranks what is decided, in this order, and takes its own part.
void StepSource::announce(std::span<Coordinator::Decision> decisions) {
  for (Coordinator::Decision& decision : decisions) {
    const std::int32_t number = decision.hits.process_set;
    frames_.clear();
    append_hits(frames_, decision.hits);
    append_remembered(frames_, number, decision.news);
    append_responses(frames_, decision.responses);
    if (frames_.empty()) {
      continue;
    }
    const std::size_t peers = channel_->send_to(coordinator_->ranks_of(number), frames_);
    parts_.counters.note_sent(peers, peers * frames_.size());
    if (parts_.trace.is_on()) {
      parts_.trace.decided();
    }
    // Skip a set without this rank: this rank may not have made it yet, while it runs an earlier step.
    if (coordinator_->ranks_of(number).front() == 0) {
      const Result<void> taken = decision.hits.bits.empty() ? Result<void>() : take_hits(decision.hits);
      HVD_CHECK(taken.ok() && remember(number, decision.news).ok());  // this rank has asked for these itself
    }
    for (Response& response : decision.responses) {
      if (parts_.trace.is_on()) {
        const ProcessSet* set = parts_.sets.find(response.process_set);
        const bool runs_here = !response.is_error() && set != nullptr && set->executor.has_value();
        parts_.trace.ready(response, parts_.pending.names_of(response), runs_here);
      }
      add_step(std::move(response));
    }
  }
}

void StepSource::leave() {
  if (is_coordinator()) {
    announce_end(0);
  } else {
    channel_->send(make_frame(control_wire::kSpec, control_wire::kLeave, {}));
  }
}

// Ends the order. What all ranks have asked for by now is still done.
void StepSource::announce_end(int by_rank) {
  if (is_end_announced_) {
    return;
  }
  is_end_announced_ = true;
  announce(coordinator_->decide_now());
  std::string frame;
  append_shutdown(frame, by_rank);
  channel_->send(frame);
  steps_.push().shutdown_by = by_rank;
}

void StepSource::close() {
  is_closed_ = true;
  steps_.clear();
  if (stall_timer_) {
    stall_timer_->stop();
  }
}

void StepSource::note_running() {
  if (stall_timer_) {
    stall_timer_->note_running();
  }
}

bool StepSource::sleep() {
  if (!channel_->sleep()) {
    return false;
  }
  if (stall_timer_) {
    stall_timer_->arm();
  }
  return true;
}

void StepSource::stay_awake() {
  if (stall_timer_) {
    stall_timer_->disarm();
  }
  channel_->stay_awake();
}

}  // namespace hvd
