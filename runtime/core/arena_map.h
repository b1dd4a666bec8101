// ArenaMap records which parts of a range of memory are in use. Every rank of a node keeps its own copy and changes it
// in the same order, so that a buffer lies at the same offset in the shared memory of each rank.
//
// It allocates the first part that fits. Thread: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace hvd {

class ArenaMap {
 public:
  // Both are multiples of `unit`, and so is every part.
  ArenaMap(std::uint64_t size_bytes, std::uint64_t unit) : size_bytes_(size_bytes), unit_(unit) {}

  // Returns where the part begins, or nothing if there is no room. `size_bytes` is above 0.
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
  // Frees the part that begins there.
  void release(std::uint64_t begin) { parts_.erase(begin); }
  [[nodiscard]] bool is_empty() const { return parts_.empty(); }

 private:
  const std::uint64_t size_bytes_;
  const std::uint64_t unit_;
  std::map<std::uint64_t, std::uint64_t> parts_;  // begin -> end; ascending, without overlap
};

}  // namespace hvd
