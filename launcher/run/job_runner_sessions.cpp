// These methods of JobRunner handle what the sessions report of their nodes while a job goes on.
#include <algorithm>

#include "launcher/run/job_runner.h"

namespace hvd::launch {

void JobRunner::on_progress(int node, const std::string& what) {
  log_.write(LogLevel::kDebug, agents_.nodes[static_cast<std::size_t>(node)].host.name + ": " + what);
  say_all(reporter_.on(news::NodeProgress{node, what}));
  show_status();
}

void JobRunner::on_notice(int node, const std::string& what) {
  say_all(reporter_.on(Note{LogLevel::kWarning, node, what}));
}

void JobRunner::on_away(int node, const Error& why, Duration patience) {
  say_all(reporter_.on(news::NodeAway{node, why, patience}));
  tree_.change(node, Relay::State::kAway);
  if (spec_.least_ranks > 0 || spec_.fresh.limit > 0) {
    // Silence has been waited for already; a connection that broke may be back at once.
    give_up_away_in(why.code() == Code::kTimeout ? Duration::zero() : spec_.heartbeat * kMissedHeartbeats, node);
  }
}

void JobRunner::give_up_away_in(Duration delay, int node) {
  away_timers_[node] = loop_.after(delay, [this, node] {
    away_timers_.erase(node);
    give_up_away(node);
  });
}

// Where this host itself has lost its network no node is in touch, and all of them may come back.
void JobRunner::give_up_away(int node) {
  NodeSession& away = *sessions_[static_cast<std::size_t>(node)];
  std::vector<int> others;
  for (const auto& session : sessions_) {
    for (const RankPlan& rank : session->plan().ranks) {
      if (session->is_in_touch()) {
        others.push_back(rank.rank);
      }
    }
  }
  if (state_.can_do_with(others) || (!others.empty() && can_start_anew_without_silent())) {
    away.give_up();
  } else if (away.is_away()) {
    give_up_away_in(spec_.heartbeat, node);
  }
}

// The hosts that are heard, also those that have no ranks yet, are enough for a new start.
bool JobRunner::can_start_anew_without_silent() const {
  long long slots = 0;
  for (const HostSpec& host : spec_.hosts) {
    const auto is_silent = [&host](const auto& session) {
      return session->plan().host.name == host.name && !session->is_in_touch();
    };
    slots += std::none_of(sessions_.begin(), sessions_.end(), is_silent) ? host.slots : 0;
  }
  return spec_.fresh.before < spec_.fresh.limit &&
         slots >= (spec_.least_ranks > 0 ? spec_.least_ranks : placement_.size);
}

void JobRunner::on_back(int node, Duration away) {
  say_all(reporter_.on(news::NodeBack{node, away}));
  if (const auto timer = away_timers_.find(node); timer != away_timers_.end()) {
    loop_.cancel(timer->second);
    away_timers_.erase(timer);
  }
  tree_.change(node, Relay::State::kUp);
}

void JobRunner::on_started(int rank, int pid) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(rank) + " runs as pid " + std::to_string(pid) + " on " +
                                   placement_.node_of(rank).host.name);
  say_all(reporter_.on(news::RankStarted{rank, pid}));
  apply(RankStarted{rank, pid});
}

void JobRunner::on_joined(const JoinedMessage& joined) {
  apply(RankJoined{joined.rank});
  generations_.on_joined(joined);
}

void JobRunner::on_start_failed(const StartFailedMessage& failed) {
  apply(RankStartFailed{failed.rank, failed.why});
}

void JobRunner::on_output(int node, const OutputMessage& output) {
  logs_.feed(node, output.rank, output.stream == StreamId::kStderr, output.bytes);
}

void JobRunner::on_output_end(int rank, StreamId stream) {
  logs_.finish(rank, stream == StreamId::kStderr);
}

void JobRunner::on_input_credit(int node, std::uint64_t bytes) {
  if (input_) {
    input_->on_credit(node, bytes);
  }
}

void JobRunner::on_input_over(int node) {
  if (input_) {
    input_->on_over(node);
  }
}

void JobRunner::on_failing(const FailingMessage& failing) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(failing.rank) + " tells of a failure: " + failing.news.what);
  FailureNews news = failing.news;
  news.by = generations_.started_as(failing.generation, news.by);
  apply(RankFailing{failing.rank, std::move(news), loop_.now()});
}

void JobRunner::on_exited(const ExitedMessage& exited) {
  log_.write(LogLevel::kDebug, "rank " + std::to_string(exited.rank) + " " + exited.status.text());
  say_all(reporter_.on(news::RankEnded{exited.rank, exited.status, exited.detail}));
  apply(RankExited{exited.rank, exited.status, exited.detail, loop_.now()});
  hosts_.look_later();
  const bool is_over = state_.ranks()[static_cast<std::size_t>(exited.rank)].state == RankRecord::State::kEnded;
  if (spec_.restart_limit > 0 && is_over && exited.status.is_success()) {
    generations_.on_done(exited.rank);
  }
  hosts_.end_if_idle(agents_.node_of(exited.rank).index);
}

void JobRunner::on_exchange(const ExchangeMessage& exchange) {
  if (const auto posted = generations_.post(exchange); !posted.ok()) {
    log_.write(LogLevel::kWarning, "rank " + std::to_string(exchange.rank) + ": " + posted.error().message());
  }
}

void JobRunner::on_problem(int node, const std::string& text) {
  say_all(reporter_.on(Note{LogLevel::kError, node, text}));
}

Result<void> JobRunner::on_relay(int node, const Frame& frame) {
  return tree_.on_frame(node, frame);
}

void JobRunner::on_suspended(int /*node*/) {
  suspension_.on_suspended();
}

void JobRunner::on_done(int node) {
  apply(NodeDone{node});
  hosts_.on_done(node);
}

void JobRunner::on_lost(int node, const Error& why) {
  if (!state_.is_over(node)) {
    say_all(reporter_.on(news::NodeLost{node, why}));
    show_status();
  }
  tree_.change(node, Relay::State::kGone);
  on_input_over(node);
  apply(NodeLost{node, why});
  hosts_.look_later();
  end_if_closed();
}

}  // namespace hvd::launch
