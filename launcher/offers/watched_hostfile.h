// WatchedHostfile is a HostSource that reads a host file again whenever it has changed. A file that cannot be read, or
// says something else, changes nothing.
//
// Thread: loop only.
#pragma once

#include <optional>
#include <string>

#include "launcher/offers/host_source.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class WatchedHostfile final : public HostSource {
 public:
  // The loop must outlive it. `slots` as in parse_offered_hosts().
  WatchedHostfile(EventLoop& loop, std::string file, int slots, Duration interval);
  ~WatchedHostfile() override;

  void start(Handlers handlers) override;
  void stop() override;

 private:
  void look();

  EventLoop& loop_;
  const std::string file_;
  const int slots_;
  const Duration interval_;
  Handlers handlers_;
  TimerId timer_ = 0;
  std::string seen_;   // what the system said of the file at the last look
  std::string taken_;  // ... and of the one that was read last; empty: none was
  int changes_ = 0;    // how many looks in a row have found it changed
  std::optional<HostList> known_;
};

}  // namespace hvd::launch
