// PositionBits is a set of positions of a response cache, one bit each. It keeps its memory, so that a set that is
// filled repeatedly does not allocate. Value type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hvd {

class PositionBits {
 public:
  void clear() { words_.clear(); }
  void set(int position) {
    const auto word = static_cast<std::size_t>(position) / kWordBits;
    if (word >= words_.size()) {
      words_.resize(word + 1);
    }
    words_[word] |= std::uint64_t{1} << (static_cast<std::size_t>(position) % kWordBits);
  }
  // Reserves memory for so many positions.
  void reserve(int positions) { words_.reserve(static_cast<std::size_t>(positions) / kWordBits + 1); }
  void assign(std::span<const std::uint64_t> words) { words_.assign(words.begin(), words.end()); }

  [[nodiscard]] bool empty() const { return words_.empty(); }
  // The last word is not 0.
  [[nodiscard]] std::span<const std::uint64_t> words() const { return words_; }
  // Calls `each` with the positions, ascending.
  template <typename Each>
  void for_each(Each each) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t left = words_[i]; left != 0; left &= left - 1) {
        each(static_cast<int>(i * kWordBits) + std::countr_zero(left));
      }
    }
  }
  bool operator==(const PositionBits&) const = default;

 private:
  static constexpr std::size_t kWordBits = 64;
  std::vector<std::uint64_t> words_;
};

}  // namespace hvd
