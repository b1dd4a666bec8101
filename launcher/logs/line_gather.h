// LineGather (--gather) prints a line that several ranks print at about the same time once, with all their numbers.
//
// The rule: each rank has a queue of the lines it printed, of both streams, oldest first. Only the heads of the queues
// count. A line leaves when it is at the head of its rank's queue, together with the equal heads (same stream, same
// bytes) of all other ranks, as one line. So a rank's own order is always kept; the price is that a line behind another
// one is not folded yet. A head leaves
//   - at once when no other rank can join it: each has the same head, or has closed that stream and holds nothing;
//   - when it has waited for the window, the longest waiting first;
//   - before its time when more than `most_bytes` are held, the longest waiting first.
// Nothing is lost or changed, and lines that differ are late by the window at most. It has no clock and no timer: its
// owner asks when() it must be called again. Value-like; thread: loop only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd::launch {

class LineGather {
 public:
  using Emit = std::function<void(std::span<const int> ranks, bool is_error, std::string_view line)>;

  // Each line is counted with this many bytes more than its text, since many short lines take memory too.
  static constexpr std::size_t kLineCost = 128;

  LineGather(int size, Duration window, std::size_t most_bytes, Emit emit);

  // One rank more has joined the job.
  void add_rank();
  void add(int rank, bool is_error, std::string_view line, TimePoint now);
  // The rank has closed this stream.
  void end(int rank, bool is_error);
  // Prints the lines that have waited for the whole window by `now`.
  void release_due(TimePoint now);
  void release_all();

  // Returns when the longest waiting line must be printed; nothing: no line is held.
  [[nodiscard]] std::optional<TimePoint> when() const;
  [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }

 private:
  struct Held {
    bool is_error = false;
    std::string line;
    TimePoint due;
    std::uint64_t number = 0;  // number of arrival: lines of one moment keep their order
  };
  struct Rank {
    std::deque<Held> queue;
    std::array<bool, 2> has_ended{};
  };
  struct Waiting {  // the head of a rank's queue
    TimePoint due;
    std::uint64_t number = 0;
    int rank = 0;
    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };

  [[nodiscard]] static std::string key_of(const Held& held) { return (held.is_error ? "2" : "1") + held.line; }
  // True when the rank holds a line, or may still print one on that stream.
  [[nodiscard]] bool may_join(const Rank& rank, bool is_error) const {
    return !rank.queue.empty() || !rank.has_ended[is_error ? 1 : 0];
  }
  void put_head(int rank);
  // Prints the head of this rank together with those that equal it.
  void release(int rank);
  // Prints the lines that no other rank can join any more, then the oldest while too much is held.
  void settle();
  [[nodiscard]] std::optional<int> find_complete() const;
  void count(const Rank& rank, int step);

  // constant after construction
  const Duration window_;
  const std::size_t most_bytes_;
  const Emit emit_;
  // loop only
  std::vector<Rank> ranks_;
  std::unordered_map<std::string, std::set<int>> groups_;  // the ranks behind each group of equal heads
  std::set<Waiting> heads_;                                // the longest waiting first
  std::array<std::size_t, 2> may_join_{};                  // [is_error] how many ranks
  std::uint64_t next_number_ = 0;
  std::size_t held_bytes_ = 0;
};

}  // namespace hvd::launch
