// Coordinator: rank 0's decisions: collects requests and turns what is ready into ordered, fused responses, for each
// process set by itself.
//
// When to decide is its own part, beside the negotiator's what: at once when every tensor that the ranks of a set have
// begun to ask for is complete, else after a short window, so that tensors that arrive together travel together. A
// timer exists only while something is ready. Thread: engine only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/controller/autotuner.h"
#include "runtime/controller/negotiator.h"
#include "runtime/observe/stall_watch.h"

namespace hvd {

class Coordinator {
 public:
  struct Options {
    int size = 1;
    std::size_t fusion_threshold_bytes = 0;
    Duration window{};           // 0: never wait for more
    bool fuses_groups = true;    // with tensors that are not of the group
    AutotuneOptions autotune{};  // of the two above
  };

  Coordinator(EventLoop& loop, const Options& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // kProtocol: this is nothing that a rank may ask for now.
  Result<void> add(int rank, Request request);
  // What all ranks do next; empty while there is nothing, or while it is worth waiting for more.
  std::vector<Response> decide();
  // The same for sets in which this rank is not: it does nothing for these, and so they need not wait until it has done
  // what it is at.
  std::vector<Response> decide_for_others();
  // All that is ready, whatever the window says.
  std::vector<Response> decide_now();

  // What the search for better settings has brought since the last call.
  Autotuner::News take_tuning_news();

  // What some ranks have asked for and others not.
  [[nodiscard]] bool has_incomplete() const;
  [[nodiscard]] std::vector<Incomplete> incomplete() const;

  // The ranks that have to know of a response for this set.
  [[nodiscard]] const std::vector<int>& ranks_of(int process_set) const;

 private:
  struct Set {
    Coordinator& coordinator;
    Negotiator negotiator;
    TimerId window = 0;
    bool has_waited = false;

    Set(Coordinator& owner, std::vector<int> ranks) : coordinator(owner), negotiator(std::move(ranks)) {}
    ~Set() { coordinator.loop_.cancel(window); }
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;
  };

  bool is_worth_waiting(Set& set);
  void decide_now(Set& set, std::vector<Response>& responses);
  void note_ready(const std::vector<Ready>& ready);
  // A change of the sets themselves, which may be refused yet.
  void change_sets(Ready& change, std::vector<Response>& responses);
  void add_set(Ready& change);
  void remove_set(Ready& change, std::vector<Response>& responses);

  // constant after construction
  EventLoop& loop_;
  const Options options_;
  // engine only
  std::map<int, std::unique_ptr<Set>> sets_;  // 0: all ranks
  int last_set_ = 0;
  TunedSetting setting_;
  std::optional<Autotuner> autotuner_;  // none: the setting stays
  Autotuner::News tuning_news_;
};

}  // namespace hvd
