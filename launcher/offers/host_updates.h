// HostUpdates keeps the ranks of a running job in step with the hosts that the job may use: it compares the two
// whenever one of them has changed, and asks for what is to be started and what is to be released.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/offers/host_offers.h"
#include "launcher/offers/host_source.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class HostUpdates {
 public:
  // Called from the loop, never from inside a call.
  struct Sink {
    // The ranks that are there; nothing: the job is not running, or is ending, and nobody joins or leaves.
    std::function<std::optional<std::vector<HostedRank>>()> there;
    std::function<void(const JoiningRanks& ranks)> join;
    // These ranks, and no others, are to be released once the others are enough.
    std::function<void(const std::vector<int>& ranks)> set_leaving;
    std::function<void(const std::string& line)> say;
    std::function<HostUse()> use;
  };

  // The loop and the source must outlive it. `first`: the hosts that the job may use at the beginning.
  HostUpdates(EventLoop& loop, HostSource& source, HostOffers first, Sink sink);
  ~HostUpdates();
  HostUpdates(const HostUpdates&) = delete;
  HostUpdates& operator=(const HostUpdates&) = delete;

  // The ranks have started: hosts may join from now on.
  void begin();
  // The job ends: nobody joins or leaves any more.
  void stop();
  // The job has changed: it is compared again, after what goes on now.
  void look_later();
  // The host is left alone for a time, `least` at least, since it does `what` ("has failed").
  void exclude(const std::string& host, const std::string& what, Duration least = {});

 private:
  void look();
  void tell_leaving(const std::vector<HostedRank>& there, const std::vector<int>& leaving);

  EventLoop& loop_;
  HostSource& source_;
  const Sink sink_;
  HostOffers offers_;
  std::vector<int> leaving_;
  HostUse use_;
  std::set<std::string> told_;  // hosts that are known to be leaving
  bool has_begun_ = false;
  TimerId look_timer_ = 0;
  TimerId return_timer_ = 0;
};

}  // namespace hvd::launch
