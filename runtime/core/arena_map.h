// ArenaMap: which parts of a range of memory are in use. Every rank of a node keeps its own and does the same to it in
// the same order, so that what is made together lies at the same place in the memory of each.
//
// First fit. Thread: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace hvd {

class ArenaMap {
 public:
  // Both multiples of `unit`, which every part then is.
  ArenaMap(std::uint64_t size_bytes, std::uint64_t unit) : size_bytes_(size_bytes), unit_(unit) {}

  // Where the part begins; nothing when there is no room. `size_bytes` > 0.
  std::optional<std::uint64_t> allocate(std::uint64_t size_bytes) {
    if (size_bytes > size_bytes_) {
      return std::nullopt;
    }
    const std::uint64_t rounded = (size_bytes + unit_ - 1) / unit_ * unit_;
    std::uint64_t begin = 0;
    for (const auto& [used, end] : parts_) {
      if (used - begin >= rounded) {
        break;
      }
      begin = end;
    }
    if (size_bytes_ - begin < rounded) {
      return std::nullopt;
    }
    parts_.emplace(begin, begin + rounded);
    return begin;
  }
  // Of a part that begins there.
  void release(std::uint64_t begin) { parts_.erase(begin); }
  [[nodiscard]] bool is_empty() const { return parts_.empty(); }

 private:
  const std::uint64_t size_bytes_;
  const std::uint64_t unit_;
  std::map<std::uint64_t, std::uint64_t> parts_;  // begin -> end, ascending and apart
};

}  // namespace hvd
