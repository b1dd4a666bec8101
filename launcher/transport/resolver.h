// Resolver: host names to addresses, off the loop. getaddrinfo blocks for as long as DNS likes, so one helper thread
// calls it and posts the results; it is started by the first name that needs it, and does nothing else.
//
// Thread: loop only. A callback may come until cancel() or until the Resolver is gone, then never.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/result.h"
#include "runtime/base/socket.h"

namespace hvd::launch {

class Resolver {
 public:
  using Done = std::function<void(Result<std::vector<SocketAddress>>)>;

  explicit Resolver(EventLoop& loop);
  // Does not wait for a lookup in progress: its answer is dropped.
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // `family`: AF_UNSPEC, AF_INET or AF_INET6. The error's message is getaddrinfo's own text.
  std::uint64_t resolve(const std::string& host, int port, int family, Done done);
  void cancel(std::uint64_t ticket);

 private:
  struct Shared;
  struct Query;
  void start_thread();

  EventLoop& loop_;
  std::shared_ptr<Shared> shared_;  // shared with the thread, which may outlive us inside getaddrinfo
  bool has_thread_ = false;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace hvd::launch
