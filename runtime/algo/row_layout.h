// RowLayout describes tensors that are split by rank along dimension 0, so that each rank has some rows of each. The
// same bytes have two orders. Apart, every tensor is whole and its rows are in rank order. Packed, the rows of all
// tensors that belong to one rank are side by side, rank after rank. So several tensors travel as one. Value type;
// pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

class RowLayout {
 public:
  struct Tensor {
    std::size_t row_bytes = 0;
    std::vector<std::int64_t> rows;  // of each rank
  };

  // The counts come from other ranks: kProtocol for a negative one, kResource for more bytes than memory can hold.
  static Result<RowLayout> make(std::vector<Tensor> tensors, int size);

  // The bytes of each rank, in all tensors together.
  [[nodiscard]] std::span<const std::size_t> rank_bytes() const { return rank_bytes_; }
  [[nodiscard]] std::size_t total_bytes() const { return total_bytes_; }

  // apart[t] is tensor t, whole.
  void pack(std::span<const void* const> apart, void* packed) const;
  void unpack(const void* packed, std::span<void* const> apart) const;

 private:
  RowLayout() = default;

  std::vector<Tensor> tensors_;
  std::vector<std::size_t> rank_bytes_;
  std::size_t total_bytes_ = 0;
};

// Returns even shares of `rows` for `size` ranks; the lowest ranks get one row more if they do not divide evenly
// (Horovod's rule).
std::vector<std::int64_t> even_rows(std::int64_t rows, int size);

}  // namespace hvd
