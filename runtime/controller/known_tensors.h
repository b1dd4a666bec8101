// KnownTensors: the coordinator's half of a process set's response cache: which tensor stands at which position, and
// which ranks have asked for it by its bit. It stands beside the negotiator, which keeps what is asked for by message;
// a tensor for which some ranks send the bit and others a message is the negotiator's (see Coordinator).
//
// Positions are the coordinator's alone to give and to take away, so that all ranks agree about them. What some ranks
// wait for keeps its position; of the others the one that was done longest ago makes room.
// Pure; an index is a rank's place in the set. Thread: engine only, on the coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/controller/known_wire.h"
#include "runtime/controller/message.h"
#include "runtime/controller/negotiator.h"

namespace hvd {

class KnownTensors {
 public:
  // For a set of so many ranks; capacity 0: nothing is ever known.
  KnownTensors(int size, std::size_t capacity);

  // Its position; -1: not known.
  [[nodiscard]] int find(const std::string& name) const;
  // Whether there is such a position at all.
  [[nodiscard]] bool has(int position) const { return position >= 0 && position < static_cast<int>(slots_.size()); }
  // Whether a rank that has heard of so many changes means what stands there now.
  [[nodiscard]] bool is_current(int position, std::uint64_t changes) const {
    return slot(position).changed_at <= changes;
  }
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  // What stands there, as all agreed on it, and as this rank asked for it.
  [[nodiscard]] const Request& request(int position) const { return slot(position).request; }
  [[nodiscard]] Request request_of(int position, int index) const;

  // This rank is ready for it. False: it has asked for it already.
  [[nodiscard]] bool ask(int position, int index, std::uint64_t serial);
  [[nodiscard]] bool has_asked(int position, int index) const {
    return slot(position).has_asked[static_cast<std::size_t>(index)];
  }
  // Nobody has asked for it any more: those who had are the negotiator's now.
  void forget_asks(int position);
  // The negotiator has it: it keeps its position until release().
  void hold(int position) { slot(position).is_held = true; }
  void release(int position) { slot(position).is_held = false; }
  [[nodiscard]] bool is_held(int position) const { return slot(position).is_held; }

  [[nodiscard]] bool has_ready() const { return !ready_.empty(); }
  [[nodiscard]] bool has_unfinished() const { return unfinished_ > 0; }
  // As Negotiator::has_fresh_incomplete().
  [[nodiscard]] bool has_fresh_incomplete() const { return fresh_incomplete_ > 0; }
  // Those for which some have asked, with the indices of those who have not; not sorted.
  [[nodiscard]] std::vector<Unfinished> unfinished() const;
  // Those for which all have asked, since the last call.
  void take(PositionBits& out);

  // Gives a position to what all ranks have asked for by message; nullopt where it cannot be known, or there is no
  // room.
  std::optional<Remembered> remember(const Ready& ready);

 private:
  struct Slot {
    Request request;
    std::vector<std::int64_t> first_dims;
    bool is_shared = false;
    bool is_held = false;
    std::vector<bool> has_asked;  // [size]
    int asked = 0;
    std::uint64_t changed_at = 0;
    std::uint64_t used_at = 0;
    std::uint64_t generation = 0;  // of take(), when it was first asked for
    std::uint64_t serial = 0;
  };

  [[nodiscard]] const Slot& slot(int position) const { return slots_[static_cast<std::size_t>(position)]; }
  [[nodiscard]] Slot& slot(int position) { return slots_[static_cast<std::size_t>(position)]; }
  [[nodiscard]] int make_room();

  const int size_;
  const std::size_t capacity_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, int> positions_;
  PositionBits ready_;
  int unfinished_ = 0;
  int fresh_incomplete_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t uses_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace hvd
