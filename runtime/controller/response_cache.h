// ResponseCache is a rank's half of a process set's response cache: the content of the positions that the coordinator
// has assigned (known_wire.h), as this rank asked for it. It also computes how the tensors of a set of positions are
// fused, so that the coordinator need not send that.
//
// Pure. Thread: engine only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/controller/known_wire.h"
#include "runtime/controller/message.h"

namespace hvd {

class ResponseCache {
 public:
  struct Known {
    Request request;  // this rank's
    bool is_shared = false;
    std::vector<std::int64_t> first_dims;  // allgather: as in Response
  };
  // Plan lists responses; each is the positions that travel together, in packing order.
  struct Plan {
    std::vector<int> order;
    std::vector<std::size_t> ends;  // the end of each response in `order`
    [[nodiscard]] std::span<const int> response(std::size_t index) const {
      const std::size_t begin = index == 0 ? 0 : ends[index - 1];
      return std::span(order).subspan(begin, ends[index] - begin);
    }
  };

  // Makes the cache for a set of so many ranks.
  explicit ResponseCache(int size) : size_(static_cast<std::size_t>(size)) {}

  // Records what the coordinator sent; `request` is what this rank asked for. kProtocol: there can be no such position,
  // or the request is of the wrong kind.
  Result<void> remember(const Remembered& what, Request request);
  // Returns the position; -1: not known.
  [[nodiscard]] int find(std::string_view name) const;
  [[nodiscard]] bool has(int position) const { return position >= 0 && position < static_cast<int>(known_.size()); }
  [[nodiscard]] const Known& at(int position) const { return known_[static_cast<std::size_t>(position)].what; }
  // How many items were remembered.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  // Plans what travels together, as plan_fusion() would: in the order of priorities, highest first, then of positions.
  // The result is the same on every rank that has taken in the same changes. All positions must be known. A plan for
  // the same bits is reused until the next change. Valid until the next call of this function or of remember().
  const Plan& plan(const KnownHits& hits);
  // How often plan() had to make a plan.
  [[nodiscard]] std::uint64_t plans_made() const { return plans_made_; }

 private:
  struct Slot {
    Known what;
    std::size_t bytes = 0;
    std::size_t tensors = 0;
    std::int32_t priority = 0;
  };
  struct Made {
    std::uint64_t fusion_bytes = 0;
    bool fuses_groups = false;
    PositionBits bits;  // empty: none
    Plan plan;
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  [[nodiscard]] const Slot& slot(int position) const { return known_[static_cast<std::size_t>(position)]; }
  [[nodiscard]] bool travel_together(const Slot& a, const Slot& b, bool fuses_groups) const;
  void reserve_plans();
  void make(const KnownHits& hits, Plan& plan);
  void add_response(std::size_t first, const KnownHits& hits, Plan& plan);

  const std::size_t size_;
  std::vector<Slot> known_;
  std::unordered_map<std::string, int, NameHash, std::equal_to<>> positions_;
  std::uint64_t changes_ = 0;
  std::vector<Made> made_;
  std::size_t next_made_ = 0;
  std::uint64_t plans_made_ = 0;
  // scratch value of make()
  std::vector<int> sorted_;
};

}  // namespace hvd
