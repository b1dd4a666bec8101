// Resolver turns host names into addresses, off the loop. getaddrinfo blocks for as long as DNS likes (5 s and more for
// a name when a name server is dead), so a few threads call it and post the results: with one, each host would wait for
// the names of all hosts before it. Threads start when names need them; a name that several wait for is asked once.
//
// Thread: loop only. A callback may come until cancel() or until the Resolver is gone, then never.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/socket.h"

namespace hvd::launch {

class Resolver {
 public:
  using Done = std::function<void(Result<std::vector<SocketAddress>>)>;
  // Looks a name up, and may block. Thread: any, several at once, also after the Resolver is gone.
  using LookUp = std::function<Result<std::vector<SocketAddress>>(const std::string& host, int port, int family)>;

  // So many names are looked up at once; others queue in order.
  static constexpr std::size_t kMaxThreads = 8;

  // `look_up` is how names are looked up; when it is empty, getaddrinfo does it.
  explicit Resolver(EventLoop& loop, LookUp look_up = {});
  // Does not wait for a lookup in progress: its answer is dropped.
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // `family` is AF_UNSPEC, AF_INET or AF_INET6. The error's message is getaddrinfo's own text. There is no deadline.
  std::uint64_t resolve(const std::string& host, int port, int family, Done done);
  void cancel(std::uint64_t ticket);

 private:
  struct Shared;
  struct Query;
  void enqueue(const Query& query);
  bool start_thread();

  std::shared_ptr<Shared> shared_;  // shared with the threads, which may outlive us inside getaddrinfo
  std::size_t threads_ = 0;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace hvd::launch
