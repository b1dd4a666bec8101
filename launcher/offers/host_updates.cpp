#include "launcher/offers/host_updates.h"

#include <algorithm>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {

HostUpdates::HostUpdates(EventLoop& loop, HostSource& source, HostOffers first, Sink sink)
    : loop_(loop), source_(source), sink_(std::move(sink)), offers_(std::move(first)) {}

HostUpdates::~HostUpdates() {
  stop();
}

void HostUpdates::stop() {
  has_begun_ = false;
  source_.stop();
  loop_.cancel(std::exchange(look_timer_, 0));
  loop_.cancel(std::exchange(return_timer_, 0));
}

void HostUpdates::begin() {
  has_begun_ = true;
  HostSource::Handlers handlers;
  handlers.on_hosts = [this](const HostList& hosts) {
    offers_.set(hosts);
    look();
  };
  handlers.on_trouble = [this](const std::string& why) { sink_.say(why); };
  source_.start(std::move(handlers));
  // A source that gives hosts to others has to know what the job has there, also where that never changes.
  use_ = sink_.use();
  source_.note_use(use_);
}

void HostUpdates::look_later() {
  if (has_begun_ && look_timer_ == 0) {
    look_timer_ = loop_.after(Duration::zero(), [this] {
      look_timer_ = 0;
      look();
    });
  }
}

void HostUpdates::exclude(const std::string& host, const std::string& what, Duration least) {
  const Duration delay = offers_.exclude(host, loop_.now(), least);
  sink_.say(host + " " + what + ", and gets no new ranks for " + duration_text(delay));
  look_later();
}

void HostUpdates::look() {
  const auto there = has_begun_ ? sink_.there() : std::nullopt;
  if (!there) {
    return;
  }
  if (const std::vector<int> leaving = offers_.leaving(*there); leaving != leaving_) {
    tell_leaving(*there, leaving);
    leaving_ = leaving;
    sink_.set_leaving(leaving);
  }
  for (const JoiningRanks& ranks : offers_.joining(*there, loop_.now())) {
    sink_.join(ranks);
  }
  // A host is in use as soon as it is told to join, so that nobody else gets it while its ranks are being started.
  if (HostUse use = sink_.use(); use != use_) {
    use_ = std::move(use);
    source_.note_use(use_);
  }
  loop_.cancel(std::exchange(return_timer_, 0));
  if (const auto next = offers_.next_return(loop_.now())) {
    return_timer_ = loop_.after(*next - loop_.now(), [this] {
      return_timer_ = 0;
      look();
    });
  }
}

void HostUpdates::tell_leaving(const std::vector<HostedRank>& there, const std::vector<int>& leaving) {
  std::set<std::string> hosts;
  for (const HostedRank& rank : there) {
    // Others are only too many, and their host stays.
    if (std::find(leaving.begin(), leaving.end(), rank.rank) != leaving.end() && !offers_.has_slot_for(rank)) {
      hosts.insert(rank.host);
    }
  }
  for (const std::string& host : hosts) {
    if (!told_.contains(host)) {
      sink_.say(host + " is to be given back: its ranks leave at their next commit, if the others are enough");
    }
  }
  told_ = std::move(hosts);
}

}  // namespace hvd::launch
