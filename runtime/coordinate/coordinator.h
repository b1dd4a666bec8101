// Coordinator makes rank 0's decisions: it collects the ranks' requests and turns ready ones into ordered, fused
// responses, for each process set separately.
//
// The negotiator decides what is ready; this class decides when to act on it. It acts at once if every tensor that the
// ranks of a set have begun to ask for is complete. Otherwise it waits a short window, so that tensors that arrive
// together travel together. A timer exists only while something is ready. Tensors that all ranks know are asked for and
// answered by bits instead of requests and responses; see controller/known_wire.h. Thread: engine only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "runtime/controller/autotuner.h"
#include "runtime/controller/known_tensors.h"
#include "runtime/controller/negotiator.h"
#include "runtime/io/event_loop.h"
#include "runtime/observe/stall_watch.h"

namespace hvd {

class Coordinator {
 public:
  struct Options {
    int size = 1;
    std::size_t fusion_threshold_bytes = 0;
    Duration window{};               // how to tune the two settings above
    bool fuses_groups = true;        // fuse groups with tensors that are not in the group
    AutotuneOptions autotune{};      // of the two above
    std::size_t cache_capacity = 0;  // how many tensors of each set are known at most
  };
  // Decision is what the ranks of one set are sent at once. It takes effect in this order: hits are done, then the
  // changes of positions in `news` apply, then the responses are done.
  struct Decision {
    KnownHits hits;  // its process_set is that of the decision
    std::vector<Remembered> news;
    std::vector<Response> responses;
  };

  Coordinator(EventLoop& loop, const Options& options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Adds a rank's request. kProtocol: a rank may not ask for this now.
  Result<void> add(int rank, Request request);
  // Does the same for tensors that this rank knows. A bit that is older than the content of its position is skipped;
  // the rank asks for the tensor again. Until then its join waits, and its set cannot be removed.
  Result<void> add_known(int rank, const KnownBits& known);
  // Returns what all ranks do next. It is empty if nothing is ready, or if it is worth waiting for more. Valid until
  // the next call of one of these functions.
  std::span<Decision> decide();
  // Does the same for sets of which this rank is not a member. This rank does nothing for them, so they need not wait
  // until it has finished its current step.
  std::span<Decision> decide_for_others();
  // Returns all that is ready, whatever the window says.
  std::span<Decision> decide_now();

  // Listeners are called for what ranks ask for and what is decided by bits; the timeline needs them. They may be
  // empty.
  struct Listeners {
    std::function<void(int rank, const Request& request)> on_asked;
    std::function<void(const Request& request)> on_hit;
  };
  void listen(Listeners listeners) { listeners_ = std::move(listeners); }

  // Returns what the search for better settings has found since the last call.
  Autotuner::News take_tuning_news();

  // What some ranks have asked for and others have not.
  [[nodiscard]] bool has_incomplete() const;
  [[nodiscard]] std::vector<Incomplete> incomplete() const;

  [[nodiscard]] bool has_set(int process_set) const { return sets_.contains(process_set); }
  // The ranks that have to receive a response for this set.
  [[nodiscard]] const std::vector<int>& ranks_of(int process_set) const;

 private:
  struct Set {
    Coordinator& coordinator;
    Negotiator negotiator;
    KnownTensors known;
    TimerId window = 0;
    bool has_waited = false;
    std::vector<int> late_bits;  // by index: the rank's skipped bits that it has not asked for again

    Set(Coordinator& owner, const std::vector<int>& ranks)
        : coordinator(owner),
          negotiator(ranks),
          known(static_cast<int>(ranks.size()), owner.options_.cache_capacity),
          late_bits(ranks.size(), 0) {}
    ~Set() { coordinator.loop_.cancel(window); }
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;

    [[nodiscard]] bool has_ready() const { return negotiator.has_ready() || known.has_ready(); }
    [[nodiscard]] bool has_unfinished() const { return negotiator.has_unfinished() || known.has_unfinished(); }
    [[nodiscard]] bool has_late_bits() const;
    // The rank has asked for one of them again. kProtocol: it has none.
    Result<void> forget_late_bit(int rank);
  };

  // Visits set 0 last, since a join is answered there: ranks that have joined take part in the other sets' operations
  // only until they have its answer.
  template <typename Visit>
  void for_each_set(Visit visit) {
    for (auto& [number, set] : sets_) {
      if (number != 0) {
        visit(number, *set);
      }
    }
    visit(0, *sets_.at(0));
  }
  Result<void> add_by_message(Set& set, int rank, int position);
  static Result<void> hand_over(Set& set, int position);
  Result<void> join(int rank);
  [[nodiscard]] bool has_late_bits(int rank) const;
  Result<void> add_set_by_members(int rank, Request request);
  bool is_worth_waiting(Set& set);
  void decide_now(int number, Set& set);
  Decision& add_decision(int process_set);
  void note_hits(const Set& set, const PositionBits& hits, bool is_tuning);
  void note_ready(const std::vector<Ready>& ready);
  void note(const Request& request, TimePoint now);
  void take_setting();
  // A change of the sets themselves, which may still be refused.
  void change_sets(Ready& change);
  void add_set(Ready& change);
  void remove_set(Ready& change);

  // constant after construction
  EventLoop& loop_;
  const Options options_;
  // engine only
  Listeners listeners_;
  std::map<int, std::unique_ptr<Set>> sets_;  // 0: all ranks
  std::vector<Decision> decisions_;  // the first decided_ of them are valid; the others are kept for their memory
  std::size_t decided_ = 0;
  int last_set_ = 0;
  std::set<int> late_joins_;  // of ranks that have late bits
  TunedSetting setting_;
  std::optional<Autotuner> autotuner_;  // none: the setting stays
  Autotuner::News tuning_news_;
};

}  // namespace hvd
