#include "launcher/agent/rank_hub.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/hmac.h"
#include "runtime/rendezvous/store_wire.h"

namespace hvd::launch {
namespace {

// A caller that connects and says nothing is dropped after this.
constexpr auto kHelloTime = std::chrono::seconds(10);

std::string growing_frame(bool is_growing) {
  ByteWriter body;
  body.u8(is_growing ? 1 : 0);
  return make_frame(store_wire::kSpec, store_wire::kGrowing, body.str());
}

}  // namespace

Result<std::unique_ptr<RankHub>> RankHub::listen(EventLoop& loop, const std::string& path, Sink sink, Log& log) {
  HVD_TRY_ASSIGN(Fd listener, listen_unix(path));
  std::unique_ptr<RankHub> hub(new RankHub(loop, std::move(listener), path, std::move(sink), log));
  RankHub* self = hub.get();
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [self](Fd connection) { self->on_connection(std::move(connection)); };
  handlers.on_trouble = [&log](const Error& why) {
    log.write(LogLevel::kWarning,
              "ranks cannot connect to their agent for now: " + why.message() + "; it tries again and again");
  };
  HVD_TRY_ASSIGN(hub->accepting_, AcceptWatch::create(loop, hub->listener_.get(), std::move(handlers)));
  return hub;
}

RankHub::RankHub(EventLoop& loop, Fd listener, std::string path, Sink sink, Log& log)
    : loop_(loop), listener_(std::move(listener)), path_(std::move(path)), sink_(std::move(sink)), log_(log) {}

RankHub::~RankHub() {
  accepting_.reset();
  for (const auto& [id, caller] : callers_) {
    loop_.cancel(caller.hello_timer);
  }
  ::unlink(path_.c_str());
}

void RankHub::admit(Admission admission) {
  admission_ = std::move(admission);
}

void RankHub::on_connection(Fd connection) {
  // The directory already keeps other users out; this is the second lock.
  if (!is_peer_trusted(connection.get())) {
    return;
  }
  const std::uint64_t id = next_id_++;
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this, id](Bytes bytes) { on_bytes(id, bytes); };
  handlers.on_closed = [this, id](const Error&) { drop(id, ""); };
  auto channel = ByteChannel::create(loop_, std::move(connection), Fd(), std::move(handlers));
  if (!channel.ok()) {
    log_.write(LogLevel::kWarning, "a rank's connection cannot be served: " + channel.error().message());
    return;
  }
  Caller caller{std::move(channel).value(), FrameDecoder(store_wire::kSpec)};
  caller.hello_timer = loop_.after(kHelloTime, [this, id] { drop(id, "said nothing for 10 s"); });
  callers_.emplace(id, std::move(caller));
}

void RankHub::catch_up() {
  accepting_->accept_now();
  std::vector<std::uint64_t> ids;
  for (const auto& [id, caller] : callers_) {
    ids.push_back(id);
  }
  for (const std::uint64_t id : ids) {
    if (const auto found = callers_.find(id); found != callers_.end()) {
      found->second.channel->read_now();
    }
  }
}

void RankHub::on_bytes(std::uint64_t id, Bytes bytes) {
  const auto found = callers_.find(id);
  if (found == callers_.end()) {
    return;
  }
  Caller& caller = found->second;
  caller.decoder.feed(bytes);
  for (;;) {
    auto next = caller.decoder.next();
    if (next.ok() && !next.value()) {
      return;
    }
    const Result<void> handled = next.ok() ? on_frame(caller, *next.value()) : Result<void>(next.error());
    if (!handled.ok()) {
      drop(id, handled.error().message());
      return;
    }
  }
}

Result<void> RankHub::on_frame(Caller& caller, const Frame& frame) {
  if (caller.rank < 0) {
    if (frame.type != store_wire::kHello && frame.type != store_wire::kVisit) {
      return Error(Code::kProtocol, "spoke before it said hello");
    }
    return on_hello(caller, frame.body, frame.type == store_wire::kVisit);
  }
  if (frame.type == store_wire::kFailure) {
    return on_failure(caller, frame.body);
  }
  if (caller.is_visitor) {
    return Error(Code::kProtocol, "sent a message that is not for a visitor");
  }
  if (frame.type == store_wire::kGoodbye) {
    return {};
  }
  ByteReader in(frame.body);
  const std::string key = in.text();
  const std::string value = in.text();
  if (frame.type != store_wire::kExchange || !in.finished()) {
    return Error(Code::kProtocol, "sent a message that is not of this conversation");
  }
  if (caller.is_waiting) {
    return Error(Code::kProtocol, "posted a value before it was welcome");
  }
  if (!caller.is_turned_away) {
    caller.waiting_for.push_back(key);
    sink_.on_exchange(caller.rank, caller.generation, key, value);
  }
  return {};
}

Result<void> RankHub::on_failure(const Caller& caller, std::string_view body) {
  HVD_TRY_ASSIGN(const FailureNews news, FailureNews::decode(body));
  if (news.by >= admission_->size) {
    return Error(Code::kProtocol,
                 "speaks of rank " + std::to_string(news.by) + " in a job of " + std::to_string(admission_->size));
  }
  sink_.on_failure(caller.rank, caller.generation, news);
  return {};
}

Result<void> RankHub::on_hello(Caller& caller, std::string_view body, bool is_visitor) {
  ByteReader in(body);
  const std::string token = in.text();
  const std::int32_t rank = in.i32();
  if (!admission_ || !in.finished() || !is_same_secret(token, admission_->token)) {
    return Error(Code::kAuth, "did not show this job's token");
  }
  if (rank < 0 || rank >= admission_->size) {
    return Error(Code::kProtocol,
                 "calls itself rank " + std::to_string(rank) + " in a job of " + std::to_string(admission_->size));
  }
  caller.rank = rank;
  loop_.cancel(caller.hello_timer);
  caller.hello_timer = 0;
  caller.is_visitor = is_visitor;
  if (is_visitor) {
    return {};
  }
  if (released_.contains(rank)) {
    caller.is_waiting = true;
    caller.channel->write(make_frame(store_wire::kSpec, store_wire::kReleased, ""));
    return {};
  }
  caller.is_waiting = !try_welcome(caller);
  if (!notice_.empty()) {
    caller.channel->write(notice_frame(notice_));
  }
  sink_.on_joined(rank, generation_, caller.is_waiting);
  return {};
}

bool RankHub::try_welcome(Caller& caller) {
  if (is_over_ || is_joining_) {
    return false;
  }
  const bool is_first = generation_ == 0;
  const auto found = is_first ? seats_.try_emplace(caller.rank).first : seats_.find(caller.rank);
  if (found == seats_.end() || (is_elastic_ && found->second.is_taken)) {
    return false;
  }
  Seat& seat = found->second;
  seat.is_taken = true;
  caller.generation = generation_;
  // Each generation has a secret of its own, so that nobody of an earlier one is taken for a member.
  const std::string secret =
      is_first ? std::string(as_text(Bytes(admission_->secret.data(), admission_->secret.size())))
               : hkdf_expand(admission_->secret, "hvd generation " + std::to_string(generation_), kSecretBytes);
  ByteWriter body;
  body.raw(secret.data(), secret.size()).u8(is_first ? 0 : 1);
  if (!is_first) {
    seat.place.write(body);
  }
  caller.channel->write(make_frame(store_wire::kSpec, store_wire::kWelcome, body.str()));
  if (has_changed_) {
    caller.channel->write(make_frame(store_wire::kSpec, store_wire::kChanged, ""));
  }
  if (is_growing_) {
    caller.channel->write(growing_frame(true));
  }
  return true;
}

void RankHub::form_generation(std::uint32_t number, const std::map<int, GenerationPlace>& places) {
  generation_ = number;
  is_over_ = false;
  is_joining_ = false;
  has_changed_ = false;
  seats_.clear();
  for (const auto& [rank, place] : places) {
    seats_[rank].place = place;
  }
  for (auto& [id, caller] : callers_) {
    if (caller.is_waiting) {
      caller.is_waiting = !try_welcome(caller);
      // Also of one that waits on: what was said of it may have crossed the news of this generation.
      sink_.on_joined(caller.rank, generation_, caller.is_waiting);
    }
  }
}

void RankHub::release(const std::vector<std::int32_t>& ranks) {
  released_.insert(ranks.begin(), ranks.end());
  for (auto& [id, caller] : callers_) {
    if (caller.is_waiting && released_.contains(caller.rank)) {
      caller.channel->write(make_frame(store_wire::kSpec, store_wire::kReleased, ""));
    }
  }
}

void RankHub::tell_changed() {
  has_changed_ = true;
  write_to_members(make_frame(store_wire::kSpec, store_wire::kChanged, ""));
}

void RankHub::set_growing(bool is_growing) {
  if (std::exchange(is_growing_, is_growing) != is_growing) {
    write_to_members(growing_frame(is_growing));
  }
}

void RankHub::write_to_members(const std::string& frame) {
  for (auto& [id, caller] : callers_) {
    if (caller.rank >= 0 && !caller.is_visitor && !caller.is_waiting && !caller.is_turned_away) {
      caller.channel->write(frame);
    }
  }
}

void RankHub::drop(std::uint64_t id, const std::string& why) {
  const auto found = callers_.find(id);
  if (found == callers_.end()) {
    return;
  }
  if (!why.empty()) {
    const int rank = found->second.rank;
    const std::string who = rank < 0 ? "a process" : "rank " + std::to_string(rank);
    log_.write(LogLevel::kWarning, "dropped the connection of " + who + " at the agent's socket: it " + why);
  }
  loop_.cancel(found->second.hello_timer);
  callers_.erase(found);
}

void RankHub::send_exchanged(std::uint32_t generation, const std::string& key, const std::vector<std::string>& values) {
  ByteWriter body;
  body.text(key).u32(static_cast<std::uint32_t>(values.size()));
  for (const std::string& value : values) {
    body.text(value);
  }
  const std::string frame = make_frame(store_wire::kSpec, store_wire::kExchanged, body.str());
  for (auto& [id, caller] : callers_) {
    if (caller.generation != generation) {
      continue;
    }
    const auto waits = std::find(caller.waiting_for.begin(), caller.waiting_for.end(), key);
    if (waits != caller.waiting_for.end()) {
      caller.waiting_for.erase(waits);
      caller.channel->write(frame);
    }
  }
}

void RankHub::send_notice(const std::string& cause) {
  notice_ = cause;
  const std::string frame = notice_frame(cause);
  for (auto& [id, caller] : callers_) {
    if (caller.rank >= 0 && !caller.is_visitor) {
      caller.channel->write(frame);
    }
  }
}

void RankHub::turn_away(const std::string& cause) {
  is_over_ = true;
  const std::string frame = notice_frame(cause);
  for (auto& [id, caller] : callers_) {
    if (caller.rank >= 0 && !caller.is_visitor && !caller.is_waiting && !caller.is_turned_away) {
      caller.is_turned_away = true;
      caller.waiting_for.clear();
      caller.channel->write(frame);
    }
  }
}

std::string RankHub::notice_frame(const std::string& cause) {
  ByteWriter body;
  body.text(cause);
  return make_frame(store_wire::kSpec, store_wire::kNotice, body.str());
}

}  // namespace hvd::launch
