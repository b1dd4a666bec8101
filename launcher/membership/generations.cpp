#include "launcher/membership/generations.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/cpu_list.h"
#include "runtime/rendezvous/store_wire.h"

namespace hvd::launch {
namespace {

// Processes that come within this time are taken in together, since each generation costs its members a pause.
constexpr auto kJoinTogether = std::chrono::seconds(5);

}  // namespace

Generations::Generations(EventLoop& loop, const Placement& placement, const Placement& agents, const Limits& limits,
                         Sink sink)
    : loop_(loop),
      placement_(placement),
      agents_(agents),
      wait_(limits.wait),
      meet_(limits.meet),
      sink_(std::move(sink)),
      membership_(placement, limits.least, limits.most),
      board_(placement.size) {}

Generations::~Generations() {
  loop_.cancel(late_timer_);
  loop_.cancel(wait_timer_);
  loop_.cancel(meet_timer_);
}

void Generations::stop() {
  is_stopped_ = true;
  loop_.cancel(std::exchange(late_timer_, 0));
  loop_.cancel(std::exchange(wait_timer_, 0));
  loop_.cancel(std::exchange(meet_timer_, 0));
}

void Generations::lose(const std::vector<int>& ranks, const std::string& cause, std::optional<StartMessage> start) {
  const bool was_broken = membership_.is_broken();
  for (const int rank : ranks) {
    membership_.on_lost(rank);
  }
  if (start) {
    membership_.on_starting(start->ranks.front().rank);
  }
  const bool is_loss = membership_.is_broken() && !was_broken;
  if (is_loss) {
    broken_since_ = loop_.now();
    await_replacements();
  }
  // The members have nothing to do with the loss of one that had not been taken in.
  advance(false, is_loss ? cause : "", start);
}

void Generations::add(int count) {
  membership_.add(count);
  if (!is_stopped_) {
    advance(false);
  }
}

void Generations::set_leaving(const std::vector<int>& ranks) {
  membership_.set_leaving(ranks);
  if (!is_stopped_) {
    advance(false);
  }
}

void Generations::on_joined(const JoinedMessage& joined) {
  if (joined.is_waiting && !is_stopped_) {
    membership_.on_waiting(joined.rank, joined.generation);
    advance(false);
    watch_meeting();
  }
}

void Generations::on_done(int rank) {
  membership_.on_done(rank);
  if (!is_stopped_) {
    advance(false);
  }
}

void Generations::advance(bool is_late, const std::string& cause, const std::optional<StartMessage>& start) {
  if (const std::optional<Generation> formed = membership_.next(wait_timer_ == 0)) {
    return begin(*formed, cause, start);
  }
  GenerationMessage message;
  message.cause = cause;
  message.kind = cause.empty() ? GenerationMessage::Kind::kStart : GenerationMessage::Kind::kBroken;
  if (start || !cause.empty() || membership_.is_growing() != is_known_to_grow_) {
    tell(message, start);
  }
  if (membership_.must_ask(is_late)) {
    message.kind = GenerationMessage::Kind::kChanged;
    tell(message);
  }
  if (membership_.awaits_others() && late_timer_ == 0) {
    late_timer_ = loop_.after(kJoinTogether, [this] {
      late_timer_ = 0;
      advance(true);
    });
  }
}

void Generations::await_replacements() {
  if (wait_ > Duration::zero() && wait_timer_ == 0) {
    wait_timer_ = loop_.after(wait_, [this] {
      wait_timer_ = 0;
      advance(false);
    });
  }
}

void Generations::watch_meeting() {
  if (membership_.unmet_rank() < 0 || meet_timer_ != 0) {
    return;
  }
  meet_timer_ = loop_.after(meet_, [this] {
    meet_timer_ = 0;
    meet_again();
  });
}

void Generations::meet_again() {
  for (const std::vector<int>& ranks : membership_.unmet_hosts()) {
    sink_.on_unmet(ranks);
  }
  const int rank = membership_.unmet_rank();
  if (rank < 0 || is_stopped_) {
    return;
  }
  const std::string cause = "rank " + std::to_string(rank) + " on " + placement_.node_of(rank).host.name +
                            " could not connect to all other ranks";
  sink_.on_meeting_again(cause);
  membership_.break_up();
  advance(false, cause);
}

void Generations::begin(const Generation& formed, const std::string& cause, const std::optional<StartMessage>& start) {
  loop_.cancel(std::exchange(late_timer_, 0));
  loop_.cancel(std::exchange(wait_timer_, 0));
  loop_.cancel(std::exchange(meet_timer_, 0));
  board_ = ExchangeBoard(static_cast<int>(formed.members.size()));
  GenerationMessage message;
  message.kind = GenerationMessage::Kind::kFormed;
  message.number = formed.number;
  message.cause = cause;
  tell(message, start, formed);
  const Duration pause = broken_since_ ? loop_.now() - *broken_since_ : Duration::zero();
  broken_since_.reset();
  sink_.on_formed(formed, pause);
}

void Generations::tell(const GenerationMessage& common, const std::optional<StartMessage>& start,
                       const Generation& formed) {
  const std::map<int, GenerationPlace> places = places_of(placement_, formed.members);
  const bool is_news = membership_.is_growing() != is_known_to_grow_;
  is_known_to_grow_ = membership_.is_growing();
  const int start_node = start ? agents_.node_of(start->ranks.front().rank).index : -1;
  for (const NodePlan& node : agents_.nodes) {
    GenerationMessage own = common;
    own.is_growing = is_known_to_grow_;
    for (const RankPlan& rank : node.ranks) {
      if (const auto place = places.find(rank.rank); place != places.end()) {
        own.members.push_back({rank.rank, place->second});
      }
      if (std::find(formed.released.begin(), formed.released.end(), rank.rank) != formed.released.end()) {
        own.released.push_back(rank.rank);
      }
    }
    if (node.index == start_node) {
      own.start = start;
    }
    if (own.kind != GenerationMessage::Kind::kStart || own.start || is_news) {
      sink_.send(node.index, AgentMessage::kGeneration, own.encode());
    }
  }
}

Result<void> Generations::post(const ExchangeMessage& exchange) {
  if (exchange.generation != membership_.now().number || membership_.is_broken()) {
    return {};  // in the next generation its ranks post again
  }
  const std::vector<int>& members = membership_.now().members;
  const auto member = std::find(members.begin(), members.end(), exchange.rank);
  if (member == members.end()) {
    return Error(Code::kProtocol, "it is no member of generation " + std::to_string(exchange.generation));
  }
  if (exchange.key.starts_with(store_wire::kWhoIsMissing)) {
    tell_missing(exchange);
    return {};
  }
  HVD_TRY_ASSIGN(auto values, board_.post(static_cast<int>(member - members.begin()), exchange.key, exchange.value));
  if (values) {
    if (exchange.key == kMetKey) {
      membership_.on_met();
    }
    sink_.broadcast(AgentMessage::kExchanged,
                    ExchangedMessage{exchange.key, std::move(*values), exchange.generation}.encode());
  }
  return {};
}

void Generations::tell_missing(const ExchangeMessage& asked) {
  const std::vector<int> missing = board_.missing(asked.key.substr(1));
  std::vector<int> ended;
  std::copy_if(missing.begin(), missing.end(), std::back_inserter(ended),
               [this, &asked](int rank) { return sink_.has_ended(started_as(asked.generation, rank)); });
  const ExchangedMessage answer{asked.key, {cpu_list_text(missing), cpu_list_text(ended)}, asked.generation};
  sink_.send(agents_.node_of(asked.rank).index, AgentMessage::kExchanged, answer.encode());
}

int Generations::started_as(std::uint32_t generation, int rank) const {
  const std::vector<int>& members = membership_.now().members;
  const bool is_known = generation == membership_.now().number && rank >= 0 && rank < static_cast<int>(members.size());
  return is_known ? members[static_cast<std::size_t>(rank)] : -1;
}

}  // namespace hvd::launch
