#include "launcher/run/moving_hosts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/joining/joiner_seats.h"
#include "launcher/run/start_plan.h"
#include "launcher/state/exit_codes.h"

namespace hvd::launch {
namespace {

// So many machines may have called before the job runs. Each has proven itself, but a loop in a script can do that too.
constexpr std::size_t kMostEarlyCalls = 1024;

}  // namespace

void MovingHosts::follow(HostSource& source, const HostOffers* offers) {
  const HostDiscovery& discovery = job_.spec.discovery;
  const HostOffers::Limits limits{most_ranks_of(job_.spec), discovery.cooldown_least, discovery.cooldown_most};
  updates_ = std::make_unique<HostUpdates>(
      job_.loop, source, offers != nullptr ? *offers : HostOffers(job_.spec.hosts, limits), updates_sink());
  job_.state.let_grow();
}

void MovingHosts::take_joiners(JoinCalls& calls) {
  calls_ = &calls;
  job_.state.let_grow();
}

Result<void> MovingHosts::listen() {
  return calls_ == nullptr ? Result<void>() : calls_->begin(job_.id, [this](int number) { seat(number); });
}

void MovingHosts::begin() {
  first_nodes_ = static_cast<int>(job_.agents.nodes.size());
  if (updates_ != nullptr) {
    updates_->begin();
  }
  for (const int number : std::exchange(early_calls_, {})) {
    job_.loop.post([this, number] { seat(number); });
  }
}

void MovingHosts::stop() {
  is_over_ = true;
  if (updates_ != nullptr) {
    updates_->stop();
  }
  stop_joining();
}

void MovingHosts::stop_joining() {
  if (calls_ != nullptr) {
    calls_->stop({exit_code::kStartFailed, "job " + job_.id + " ends, and takes nobody any more"});
  }
}

void MovingHosts::stop_joining_if_over() {
  if (!hosted_ranks()) {
    stop_joining();
  }
}

void MovingHosts::look_later() {
  if (updates_ != nullptr) {
    updates_->look_later();
  }
}

void MovingHosts::leave_alone(int node, const std::string& what) {
  if (updates_ == nullptr || has_joined(node)) {
    return;
  }
  // Ranks that cannot be reached may live on, and would share the host's GPUs with new ones.
  const Duration stay = job_.session(node).ranks_may_stay(job_.spec.grace);
  updates_->exclude(job_.agent(node).host.name, what, std::chrono::ceil<std::chrono::seconds>(stay));
}

HostUpdates::Sink MovingHosts::updates_sink() {
  HostUpdates::Sink sink;
  sink.there = [this] { return hosted_ranks(); };
  sink.join = [this](const JoiningRanks& ranks) { open_(add_node(ranks)); };
  sink.set_leaving = [this](const std::vector<int>& ranks) {
    leaving_hosts_ = ranks;
    update_leaving();
  };
  sink.use = [this] { return use(); };
  sink.say = [this](const std::string& line) { job_.say(Note{LogLevel::kWarning, -1, line}); };
  return sink;
}

std::optional<std::vector<HostedRank>> MovingHosts::hosted_ranks() const {
  std::vector<HostedRank> there;
  for (const int rank : job_.state.ranks_to_keep()) {
    const NodePlan& node = job_.agents.node_of(rank);
    const int local_rank = node.ranks[static_cast<std::size_t>(rank - node.ranks.front().rank)].local_rank;
    there.push_back({rank, node.host.name, local_rank, has_joined(node.index), leaving_nodes_.contains(node.index)});
  }
  return there.empty() ? std::nullopt : std::optional(std::move(there));
}

// A node that comes later on the same host has the last word.
HostUse MovingHosts::use() const {
  HostUse use;
  for (const NodePlan& node : job_.agents.nodes) {
    if (has_joined(node.index)) {
      continue;  // it comes and goes by itself
    }
    bool is_used = false;
    bool is_lost = false;
    for (const RankPlan& rank : node.ranks) {
      const RankRecord::State state = job_.record(rank.rank).state;
      is_used = is_used || state == RankRecord::State::kRunning || state == RankRecord::State::kPending;
      is_lost = is_lost || state == RankRecord::State::kLost;
    }
    if (is_used) {
      use.used.insert(node.host.name);
    }
    if (is_lost) {
      use.lost.insert(node.host.name);
    } else {
      use.lost.erase(node.host.name);
    }
  }
  std::erase_if(use.lost, [&use](const std::string& host) { return use.used.contains(host); });
  return use;
}

int MovingHosts::add_node(const JoiningRanks& ranks) {
  job_.placement.add(ranks.host, ranks.first_local, ranks.count);
  job_.agents.add(ranks.host, ranks.first_local, ranks.count);
  const int node = job_.agents.nodes.back().index;
  job_.apply(NodeJoining{node});
  job_.starts.emplace_back();
  if (const auto kept = job_.logs.add_node(ranks.count); !kept.ok()) {
    job_.say(Note{LogLevel::kError, node, kept.error().message() + "; what its ranks print is not kept"});
  }
  job_.sessions.push_back(
      std::make_unique<NodeSession>(job_.loop, job_.agents.nodes.back(), job_.placement.size, sink_));
  job_.say(news::NodeJoining{node});
  job_.generations.add(ranks.count);
  return node;
}

// ---- machines that call ----

void MovingHosts::seat(int number) {
  if (!calls_->is_there(number)) {
    return;  // it has gone while it waited
  }
  if (job_.state.phase() == JobPhase::kOpening) {
    if (calls_->waiting() > kMostEarlyCalls) {
      return refuse(number, Error(Code::kResource, "too many machines wait for the job to begin"));
    }
    early_calls_.push_back(number);
    return;
  }
  auto there = hosted_ranks();
  if (!there) {
    return refuse(number, Error(Code::kResource, "the job ends, and takes nobody any more"));
  }
  JobRoom room;
  for (const auto& session : job_.sessions) {
    const NodePlan& plan = session->plan();
    if (session->ready() && !job_.state.is_over(plan.index)) {
      room.nodes.push_back({plan.host.name, session->ready()->machine});
    }
  }
  for (HostedRank& rank : *there) {
    rank.is_leaving =
        rank.is_leaving || std::find(leaving_hosts_.begin(), leaving_hosts_.end(), rank.rank) != leaving_hosts_.end();
  }
  room.ranks = *std::move(there);
  room.most_ranks = most_ranks_of(job_.spec);
  room.version = calls_->version();
  const auto seats = seat_joiner(calls_->ready(number), calls_->address_of(number), room);
  if (!seats.ok()) {
    return refuse(number, seats.error());
  }
  const int node = add_node(seats.value());
  joined_nodes_.insert(node);
  calls_->seat(number, job_.agent(node).ranks.front().rank);
  job_.session(node).open(*calls_);
}

void MovingHosts::refuse(int number, const Error& why) {
  job_.say(
      Note{LogLevel::kWarning, -1,
           "a machine at " + calls_->address_of(number) + " has called to join, and is refused: " + why.message()});
  calls_->refuse(number, {exit_code_of_start(why), "job " + job_.id + " refuses this machine: " + why.message()});
}

ByeMessage MovingHosts::last_words(int node) const {
  if (!has_joined(node)) {
    return {};
  }
  if (is_over_) {
    const int code = job_.state.exit_code();
    return {code, "job " + job_.id + " has ended" + (code == 0 ? "" : ", with code " + std::to_string(code))};
  }
  bool is_released = false;
  for (const RankPlan& rank : job_.agent(node).ranks) {
    const RankRecord& record = job_.record(rank.rank);
    is_released = is_released || record.is_released;
    if (!record.is_released && !record.status.is_success()) {
      return {record.status.shell_code(), "job " + job_.id + " goes on without rank " + std::to_string(rank.rank) +
                                              ", which " + record.status.text()};
    }
    if (!record.is_released && !record.lost_for.empty()) {
      return {exit_code::kStartFailed, "job " + job_.id + " goes on without this machine: " + record.lost_for};
    }
  }
  return {0, is_released ? "this machine has left job " + job_.id + ", which goes on"
                         : "the ranks here of job " + job_.id + " have ended in order"};
}

// ---- nodes that leave ----

bool MovingHosts::on_leaving(int node, const std::string& why) {
  if (job_.state.is_over(node) || !leaving_nodes_.insert(node).second) {
    return true;
  }
  if (!has_joined(node) && !job_.state.can_do_with(staying_ranks())) {
    return false;
  }
  job_.say(Note{LogLevel::kWarning, node,
                "its agent leaves (" + why + "): its ranks leave at their next commit, if the others are enough"});
  leave_alone(node, "leaves");
  update_leaving();
  if (job_.state.is_over(node)) {
    job_.session(node).close_input(last_words(node));  // nothing was started there
  }
  return true;
}

bool MovingHosts::on_ending(int node) {
  std::vector<int> own;
  for (const RankPlan& rank : job_.agents.nodes[static_cast<std::size_t>(node)].ranks) {
    own.push_back(rank.rank);
  }
  leaving_nodes_.insert(node);
  return any_runs(own) && !any_runs(staying_ranks());
}

bool MovingHosts::any_runs(const std::vector<int>& ranks) const {
  return std::any_of(ranks.begin(), ranks.end(), [this](int rank) {
    return job_.state.ranks()[static_cast<std::size_t>(rank)].state == RankRecord::State::kRunning;
  });
}

std::vector<int> MovingHosts::staying_ranks() const {
  std::vector<int> staying;
  for (const NodePlan& node : job_.agents.nodes) {
    for (const RankPlan& rank : node.ranks) {
      if (!leaving_nodes_.contains(node.index)) {
        staying.push_back(rank.rank);
      }
    }
  }
  return staying;
}

void MovingHosts::update_leaving() {
  std::vector<int> leaving = leaving_hosts_;
  for (const int node : leaving_nodes_) {
    for (const RankPlan& rank : job_.agent(node).ranks) {
      leaving.push_back(rank.rank);
    }
  }
  std::vector<int> outside;  // they have nothing to lose yet
  for (const int rank : leaving) {
    if (!job_.record(rank).is_member && !job_.record(rank).is_released) {
      outside.push_back(rank);
    }
  }
  job_.generations.set_leaving(leaving);
  job_.apply(RanksReleased{outside});
}

void MovingHosts::on_done(int node) {
  const std::vector<RankPlan>& ranks = job_.agent(node).ranks;
  const bool is_released = std::any_of(ranks.begin(), ranks.end(),
                                       [this](const RankPlan& rank) { return job_.record(rank.rank).is_released; });
  // Other agents stay to the end: an engine that has started them would be over with them, while others still run.
  if (job_.state.phase() == JobPhase::kRunning && (is_released || came_later(node))) {
    job_.session(node).close_input(last_words(node));
  }
}

void MovingHosts::on_restart(int node) {
  if (leaving_nodes_.contains(node)) {
    job_.loop.post([this] { update_leaving(); });  // it is no member any more, and so released at once
  }
}

void MovingHosts::end_if_idle(int node) {
  const std::vector<RankPlan>& ranks = job_.agent(node).ranks;
  const auto are_all = [&](std::initializer_list<RankRecord::State> states) {
    return std::all_of(ranks.begin(), ranks.end(), [&](const RankPlan& rank) {
      return std::find(states.begin(), states.end(), job_.record(rank.rank).state) != states.end();
    });
  };
  // Spark and Ray start another agent in the place of one that has ended.
  const bool is_replaced = calls_ != nullptr && job_.spec.launcher == LauncherKind::kSpark;
  const bool is_idle = (came_later(node) && are_all({RankRecord::State::kEnded, RankRecord::State::kLost})) ||
                       (is_replaced && are_all({RankRecord::State::kLost}));
  if (is_idle && job_.state.phase() == JobPhase::kRunning) {
    // Its agent would wait for ranks that are started again. A host that is tried again gets another agent, so one
    // that always fails would gather them.
    job_.end_node(node);
  }
}

}  // namespace hvd::launch
