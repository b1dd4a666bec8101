#include "launcher/membership/generations.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {
namespace {

// Processes that come within this time are taken in together, since each generation costs its members a pause.
constexpr auto kJoinTogether = std::chrono::seconds(5);

}  // namespace

Generations::Generations(EventLoop& loop, const Placement& placement, const Placement& agents, int least, Sink sink)
    : loop_(loop), placement_(placement), agents_(agents), sink_(std::move(sink)), membership_(placement, least) {
  boards_.emplace(0, ExchangeBoard(placement.size));
  members_of_.emplace(0, membership_.now().members);
}

Generations::~Generations() {
  loop_.cancel(late_timer_);
}

void Generations::stop() {
  is_stopped_ = true;
  loop_.cancel(std::exchange(late_timer_, 0));
}

void Generations::lose(const std::vector<int>& ranks, const std::string& cause, std::optional<StartMessage> start) {
  for (const int rank : ranks) {
    membership_.on_lost(rank);
  }
  if (start) {
    membership_.on_starting(start->ranks.front().rank);
  }
  if (membership_.is_broken() && !broken_since_) {
    broken_since_ = loop_.now();
  }
  form(false, cause, start);
}

void Generations::on_joined(const JoinedMessage& joined) {
  if (joined.is_waiting && !is_stopped_) {
    membership_.on_waiting(joined.rank, joined.generation);
    form(false, "", std::nullopt);
  }
}

void Generations::form(bool is_late, const std::string& cause, const std::optional<StartMessage>& start) {
  const std::uint32_t last = membership_.now().number;
  GenerationMessage message;
  message.cause = cause;
  const std::optional<Generation> formed = membership_.next(is_late);
  if (!formed) {
    if (!cause.empty()) {
      message.number = last;
      tell(message, {}, start);
    }
    if (membership_.awaits_others() && late_timer_ == 0) {
      late_timer_ = loop_.after(kJoinTogether, [this] {
        late_timer_ = 0;
        form(true, "", std::nullopt);
      });
    }
    return;
  }
  loop_.cancel(std::exchange(late_timer_, 0));
  // The last generation's members may still post while they leave it gently; nobody answers those of an earlier one.
  std::erase_if(boards_, [&](const auto& board) { return board.first != last || !formed->is_gentle; });
  std::erase_if(members_of_, [&](const auto& members) { return members.first != last; });
  boards_.emplace(formed->number, ExchangeBoard(static_cast<int>(formed->members.size())));
  members_of_.emplace(formed->number, formed->members);
  message.number = formed->number;
  message.is_formed = true;
  tell(message, formed->members, start);
  const Duration pause = broken_since_ ? loop_.now() - *broken_since_ : Duration::zero();
  broken_since_.reset();
  sink_.on_formed(*formed, pause);
}

void Generations::tell(const GenerationMessage& common, const std::vector<int>& members,
                       const std::optional<StartMessage>& start) {
  const std::map<int, GenerationPlace> places = places_of(placement_, members);
  const int start_node = start ? agents_.node_of(start->ranks.front().rank).index : -1;
  for (const NodePlan& node : agents_.nodes) {
    GenerationMessage own = common;
    for (const RankPlan& rank : node.ranks) {
      if (const auto place = places.find(rank.rank); place != places.end()) {
        own.members.push_back({rank.rank, place->second});
      }
    }
    if (node.index == start_node) {
      own.start = start;
    }
    sink_.send(node.index, AgentMessage::kGeneration, own.encode());
  }
}

Result<void> Generations::post(const ExchangeMessage& exchange) {
  const auto board = boards_.find(exchange.generation);
  if (board == boards_.end()) {
    return {};  // after a new generation is formed its ranks post again
  }
  const std::vector<int>& members = members_of_.at(exchange.generation);
  const auto member = std::find(members.begin(), members.end(), exchange.rank);
  if (member == members.end()) {
    return Error(Code::kProtocol, "it is no member of generation " + std::to_string(exchange.generation));
  }
  HVD_TRY_ASSIGN(auto values,
                 board->second.post(static_cast<int>(member - members.begin()), exchange.key, exchange.value));
  if (values) {
    sink_.broadcast(AgentMessage::kExchanged,
                    ExchangedMessage{exchange.key, std::move(*values), exchange.generation}.encode());
  }
  return {};
}

int Generations::started_as(std::uint32_t generation, int rank) const {
  const auto members = members_of_.find(generation);
  const bool is_known = members != members_of_.end() && rank >= 0 && rank < static_cast<int>(members->second.size());
  return is_known ? members->second[static_cast<std::size_t>(rank)] : -1;
}

}  // namespace hvd::launch
