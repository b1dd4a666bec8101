// KnownTensors is the coordinator's half of a process set's response cache: which tensor has which position, and which
// ranks have asked for it by its bit. The negotiator keeps what is asked for by message. If some ranks send a tensor's
// bit and others a message, the negotiator takes the tensor over (see Coordinator).
//
// Only the coordinator assigns and frees positions, so that all ranks agree about them. A tensor for which some ranks
// wait keeps its position; of the others, the one that was used longest ago makes room for a new one.
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
  // Makes the half for a set of so many ranks; with capacity 0 no tensor is ever known.
  KnownTensors(int size, std::size_t capacity);

  // Returns the tensor's position; -1: not known.
  [[nodiscard]] int find(const std::string& name) const;
  // True if the position exists at all.
  [[nodiscard]] bool has(int position) const { return position >= 0 && position < static_cast<int>(slots_.size()); }
  // Whether the content of the position is the one that a rank means which has received so many changes.
  [[nodiscard]] bool is_current(int position, std::uint64_t changes) const {
    return slot(position).changed_at <= changes;
  }
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  // The request at this position, as all ranks agreed on it (request), and as this rank asked for it (request_of).
  [[nodiscard]] const Request& request(int position) const { return slot(position).request; }
  [[nodiscard]] Request request_of(int position, int index) const;

  // The serial with which a rank first asked for it, while some have asked and others have not.
  [[nodiscard]] std::uint64_t serial(int position) const { return slot(position).serial; }

  // Records that this rank is ready for the tensor. False: it has asked for it already.
  [[nodiscard]] bool ask(int position, int index, std::uint64_t serial);
  [[nodiscard]] bool has_asked(int position, int index) const {
    return slot(position).has_asked[static_cast<std::size_t>(index)];
  }
  // Clears the ranks' bits for this position: the negotiator now keeps their requests.
  void forget_asks(int position);
  // The negotiator has the tensor, which keeps its position until release().
  void hold(int position) { slot(position).is_held = true; }
  void release(int position) { slot(position).is_held = false; }
  [[nodiscard]] bool is_held(int position) const { return slot(position).is_held; }

  [[nodiscard]] bool has_ready() const { return !ready_.empty(); }
  [[nodiscard]] bool has_unfinished() const { return unfinished_ > 0; }
  // See Negotiator::has_fresh_incomplete().
  [[nodiscard]] bool has_fresh_incomplete() const { return fresh_incomplete_ > 0; }
  // Returns the tensors for which some ranks have asked, with the indices of those that have not; not sorted.
  [[nodiscard]] std::vector<Unfinished> unfinished() const;
  // Returns the positions for which all ranks have asked, since the last call.
  void take(PositionBits& out);

  // Assigns a position to a tensor that all ranks have asked for by message. Returns nullopt if the tensor cannot be
  // known, or if there is no room.
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
    std::uint64_t generation = 0;  // the number of take() calls when it was first asked for
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
