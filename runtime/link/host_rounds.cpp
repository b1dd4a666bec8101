#include "runtime/link/host_rounds.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/io/socket.h"

namespace hvd {
namespace {

constexpr Duration kCheckEvery = std::chrono::milliseconds(100);
// When the job has ended on this rank, the messages of a round that the others have finished before may still be on
// their way.
constexpr Duration kTimeAfterEnd = std::chrono::milliseconds(500);
// No node is this many rounds ahead of another.
constexpr std::uint64_t kMostAhead = std::uint64_t{1} << 40U;

int paired_of(int nodes) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
}

}  // namespace

// Waiting is how long a run has waited, and what it does about it: it looks, sleeps, asks, and gives up when the job is
// over. It watches one connection at a time. note_progress(): what comes next is a new wait.
class HostRounds::Waiting {
 public:
  Waiting(HostRounds& rounds, std::uint64_t round, RoundWaits& waits) : rounds_(rounds), round_(round), waits_(waits) {}

  void note_progress() { in_vain_ = 0; }
  [[nodiscard]] bool has_given_up() const { return has_given_up_; }
  // False: the job is over, or the set is removed.
  Result<bool> wait(const HostLink& link, bool is_sending, bool is_receiving) {
    if (rounds_.looks_.has_more(++in_vain_)) {
      return true;
    }
    in_vain_ = 0;
    if (!next_ask_) {
      next_ask_ = Deadline::after(kPatience);
    }
    waits_.note_sleep();
    const TimePoint began = SteadyClock().now();
    pollfd wait{link.fd(), static_cast<short>((is_sending ? POLLOUT : 0) | (is_receiving ? POLLIN : 0)), 0};
    if (::poll(&wait, 1, next_ask_->poll_ms()) < 0 && errno != EINTR) {
      return Error::from_errno("poll");
    }
    rounds_.looks_.note_sleep(SteadyClock().now() - began);
    return next_ask_->has_passed() ? check(link) : Result<bool>(true);
  }

 private:
  Result<bool> check(const HostLink& link) {
    next_ask_ = Deadline::after(kCheckEvery);
    if (waits_.is_over() && !gives_up_) {
      gives_up_ = Deadline::after(kTimeAfterEnd);
    }
    if ((gives_up_ && gives_up_->has_passed()) || rounds_.is_retired()) {
      has_given_up_ = true;
      return false;
    }
    if (is_unanswered(link.fd())) {
      return link.lost("it has answered nothing for 14 s; its host or the network between is down");
    }
    waits_.ask(round_);
    return true;
  }

  HostRounds& rounds_;
  const std::uint64_t round_;
  RoundWaits& waits_;
  int in_vain_ = 0;
  std::optional<Deadline> next_ask_;
  std::optional<Deadline> gives_up_;
  bool has_given_up_ = false;
};

std::vector<int> HostRounds::partners_of(int node, int nodes) {
  const int paired = paired_of(nodes);
  if (node >= paired) {
    return {node - paired};
  }
  std::vector<int> partners;
  for (int distance = 1; distance < paired; distance *= 2) {
    partners.push_back(node ^ distance);
  }
  if (node + paired < nodes) {
    partners.push_back(node + paired);
  }
  return partners;
}

HostRounds::HostRounds(std::vector<std::unique_ptr<HostLink>> links, int node, Looks looks)
    : links_(std::move(links)), self_(node), looks_(looks), has_posted_to_(links_.size()) {}

bool HostRounds::is_retired() {
  const std::lock_guard lock(mu_);
  return is_retired_;
}

void HostRounds::retire() {
  const std::lock_guard lock(mu_);
  is_retired_ = true;
}

Result<bool> HostRounds::begin(std::uint64_t number) {
  const std::lock_guard lock(mu_);
  HVD_CHECK(!is_running_);
  if (is_retired_ || declined_for_ == number) {
    return false;
  }
  HVD_TRY_ASSIGN(const bool owes_nothing, flush_all());
  is_running_ = owes_nothing;
  return owes_nothing;
}

// False: some connection has no room now. The next answer() or begin() goes on.
Result<bool> HostRounds::flush_all() {
  bool is_done = true;
  for (const auto& link : links_) {
    if (link != nullptr) {
      HVD_TRY_ASSIGN(const bool is_flushed, link->flush());
      is_done = is_done && is_flushed;
    }
  }
  return is_done;
}

// Answers all rounds up to this one; mu_ is held, or a round is running.
Result<void> HostRounds::decline_through(std::uint64_t round) {
  for (const auto& link : links_) {
    if (link != nullptr) {
      link->decline(round);
    }
  }
  HVD_TRY(flush_all());
  return {};
}

Result<void> HostRounds::decline(std::uint64_t number) {
  const std::lock_guard lock(mu_);
  if (is_retired_ || declined_for_ == number) {
    return {};
  }
  return decline_through(round_++);
}

Result<void> HostRounds::answer(std::uint64_t round, std::uint64_t number) {
  const std::lock_guard lock(mu_);
  if (is_retired_) {
    return {};
  }
  if (round < round_) {
    if (!is_running_) {
      HVD_TRY(flush_all());  // the answer may be among what a connection had no room for
    }
    return {};
  }
  if (round - round_ > kMostAhead) {
    return Error(Code::kProtocol, "a rank asked for the answer of round " + std::to_string(round) + ", but round " +
                                      std::to_string(round_) + " is next");
  }
  if (is_running_) {
    asked_ = std::max(round, asked_.value_or(0));  // run() answers at its end what it has not answered by then
    return {};
  }
  declined_for_ = number;
  round_ = round + 1;
  return decline_through(round);
}

Result<bool> HostRounds::run(Bytes head, RoundData& data, RoundWaits& waits) {
  const std::uint64_t round = round_;  // the engine leaves it alone while this runs
  std::fill(has_posted_to_.begin(), has_posted_to_.end(), false);
  through_ = round;
  Waiting waiting(*this, round, waits);
  auto is_done = run_exchanges({round, head, data, waiting});
  const std::lock_guard lock(mu_);
  is_running_ = false;
  if (!is_done.ok() || waiting.has_given_up()) {
    is_retired_ = true;
    return is_done;
  }
  round_ = through_ + 1;
  if (asked_ && *asked_ >= round_) {
    through_ = *asked_;
    round_ = through_ + 1;
    HVD_TRY(decline_through(through_));
  }
  asked_.reset();
  return is_done;
}

// Sends those partners a decline that have no message of the round yet, and all partners the decline of later rounds. A
// node that has given up says nothing more: it does not know that the round is declined.
Result<bool> HostRounds::end_declined(const Run& run) {
  if (run.waiting.has_given_up()) {
    return false;
  }
  for (int node = 0; node < count(); ++node) {
    if (links_[static_cast<std::size_t>(node)] == nullptr) {
      continue;
    }
    link(node).keep_rest();
    if (!has_posted_to_[static_cast<std::size_t>(node)] || through_ > run.round) {
      link(node).decline(through_);
    }
  }
  HVD_TRY(flush_all());
  return false;
}

Result<bool> HostRounds::run_exchanges(const Run& run) {
  const int paired = paired_of(count());
  const auto nonsense = [&](int node) {
    return Error(Code::kProtocol, link(node).ends().there + " sent data of another size than its operation's");
  };
  if (self_ >= paired) {
    HVD_TRY_ASSIGN(const Heard result, exchange(run, self_ - paired, Way::kBoth));
    if (!result) {
      return end_declined(run);
    }
    return run.data.accept(*result) ? Result<bool>(true) : nonsense(self_ - paired);
  }
  const int beyond = self_ + paired;
  if (beyond < count()) {
    HVD_TRY_ASSIGN(const Heard theirs, exchange(run, beyond, Way::kReceive));
    if (!theirs) {
      return end_declined(run);
    }
    if (!run.data.take(*theirs, false, false)) {
      return nonsense(beyond);
    }
  }
  for (int distance = 1; distance < paired; distance *= 2) {
    const int partner = self_ ^ distance;
    HVD_TRY_ASSIGN(const Heard theirs, exchange(run, partner, Way::kBoth));
    if (!theirs) {
      return end_declined(run);
    }
    if (!run.data.take(*theirs, partner < self_, distance * 2 == paired)) {
      return nonsense(partner);
    }
  }
  if (beyond < count()) {
    HVD_TRY(exchange(run, beyond, Way::kSend));  // the round is done, even if the job ends before this is sent
  }
  return true;
}

// Returns when the partner's message has come and this node's was sent.
Result<HostRounds::Heard> HostRounds::exchange(const Run& run, int node, Way way) {
  HostLink& partner = link(node);
  bool is_sending = way != Way::kReceive;
  run.waiting.note_progress();
  if (is_sending) {
    partner.post(run.round, run.head, run.data.own());
    has_posted_to_[static_cast<std::size_t>(node)] = true;
  }
  std::optional<Heard> heard;
  if (way == Way::kSend) {
    heard = Heard(Bytes());
  }
  for (;;) {
    if (is_sending) {
      HVD_TRY_ASSIGN(const bool is_sent, partner.flush());
      is_sending = !is_sent;
      if (is_sent) {
        run.waiting.note_progress();
      }
    }
    if (!heard) {
      HVD_TRY_ASSIGN(heard, hear(run, node));
    }
    if (heard && (!*heard || !is_sending)) {
      return *heard;
    }
    HVD_TRY_ASSIGN(const bool goes_on, run.waiting.wait(partner, is_sending, !heard));
    if (!goes_on) {
      return Heard();
    }
  }
}

// Takes in what else has come after a decline, if these are declines too. So a node that was away for many rounds does
// not go through them one by one.
Result<void> HostRounds::hear_declines(int node) {
  for (;;) {
    HVD_TRY_ASSIGN(const auto message, link(node).receive(HostLink::length_of(0, 0)));
    if (!message) {
      return {};
    }
    if (message->kind != HostLink::Kind::kDecline || message->round - through_ > kMostAhead) {
      link(node).put_back();
      return {};
    }
    through_ = std::max(through_, message->round);
  }
}

// Returns what the partner says of the round, once it has come.
Result<std::optional<HostRounds::Heard>> HostRounds::hear(const Run& run, int node) {
  for (;;) {
    HVD_TRY_ASSIGN(const auto message, link(node).receive(HostLink::length_of(run.head.size(), run.data.size_bytes())));
    if (!message) {
      return std::optional<Heard>();
    }
    if (message->round < run.round) {
      continue;  // of a round that this node had declined
    }
    if (message->kind == HostLink::Kind::kDecline && message->round - run.round <= kMostAhead) {
      through_ = std::max(through_, message->round);
      HVD_TRY(hear_declines(node));
      return std::optional<Heard>(Heard());
    }
    if (message->round != run.round) {
      return Error(Code::kProtocol, link(node).ends().there + " answered round " + std::to_string(message->round) +
                                        ", but round " + std::to_string(run.round) + " was to come");
    }
    const bool is_same = std::equal(message->head.begin(), message->head.end(), run.head.begin(), run.head.end());
    return std::optional<Heard>(is_same ? Heard(message->data) : Heard());
  }
}

}  // namespace hvd
