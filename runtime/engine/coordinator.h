// Coordinator: rank 0's decisions: collects requests and turns what is ready into ordered, fused responses.
//
// When to decide is its own part, beside the negotiator's what: at once when every tensor that ranks have begun to ask
// for is complete, else after a short window, so that tensors that arrive together travel together. A timer exists only
// while something is ready. Thread: engine only.
#pragma once

#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/controller/negotiator.h"

namespace hvd {

class Coordinator {
 public:
  struct Options {
    int size = 1;
    std::size_t fusion_threshold_bytes = 0;
    Duration window{};  // 0: never wait for more
  };

  Coordinator(EventLoop& loop, const Options& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  Result<void> add(int rank, Request request) { return negotiator_.add(rank, std::move(request)); }
  // What all ranks do next; empty while there is nothing, or while it is worth waiting for more.
  std::vector<Response> decide();
  // All that is ready, whatever the window says.
  std::vector<Response> decide_now();

 private:
  // constant after construction
  EventLoop& loop_;
  const Options options_;
  // engine only
  Negotiator negotiator_;
  TimerId window_ = 0;
  bool has_waited_ = false;
};

}  // namespace hvd
