#include "runtime/algo/row_layout.h"

#include <cstring>

#include "runtime/algo/schedule.h"

namespace hvd {
namespace {

// The limit is far above any memory and far below overflow.
constexpr std::size_t kMaxBytes = std::size_t{1} << 56U;

// Visits each rank's rows of each tensor, in packed order: move(tensor, position in the packed form, position in the
// tensor, bytes).
template <typename Move>
void for_each_block(const std::vector<RowLayout::Tensor>& tensors, std::size_t size, const Move& move) {
  std::vector<std::size_t> apart_at(tensors.size(), 0);
  std::size_t packed_at = 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const std::size_t bytes = static_cast<std::size_t>(tensors[t].rows[rank]) * tensors[t].row_bytes;
      if (bytes > 0) {
        move(t, packed_at, apart_at[t], bytes);
      }
      packed_at += bytes;
      apart_at[t] += bytes;
    }
  }
}

}  // namespace

Result<RowLayout> RowLayout::make(std::vector<Tensor> tensors, int size) {
  RowLayout layout;
  layout.rank_bytes_.assign(static_cast<std::size_t>(size), 0);
  for (const Tensor& tensor : tensors) {
    if (tensor.rows.size() != layout.rank_bytes_.size()) {
      return Error(Code::kProtocol,
                   "rows of " + std::to_string(tensor.rows.size()) + " ranks, expected " + std::to_string(size));
    }
    for (std::size_t rank = 0; rank < tensor.rows.size(); ++rank) {
      if (tensor.rows[rank] < 0) {
        return Error(Code::kProtocol, "impossible number of rows " + std::to_string(tensor.rows[rank]));
      }
      std::size_t bytes = 0;
      const auto rows = static_cast<std::size_t>(tensor.rows[rank]);
      if (__builtin_mul_overflow(rows, tensor.row_bytes, &bytes) || bytes > kMaxBytes - layout.total_bytes_) {
        return Error(Code::kResource, "tensors that are larger than any memory");
      }
      layout.rank_bytes_[rank] += bytes;
      layout.total_bytes_ += bytes;
    }
  }
  layout.tensors_ = std::move(tensors);
  return layout;
}

void RowLayout::pack(std::span<const void* const> apart, void* packed) const {
  auto* to = static_cast<std::uint8_t*>(packed);
  for_each_block(tensors_, rank_bytes_.size(),
                 [&](std::size_t t, std::size_t in_packed, std::size_t in_tensor, std::size_t bytes) {
                   std::memcpy(to + in_packed, static_cast<const std::uint8_t*>(apart[t]) + in_tensor, bytes);
                 });
}

void RowLayout::unpack(const void* packed, std::span<void* const> apart) const {
  const auto* from = static_cast<const std::uint8_t*>(packed);
  for_each_block(tensors_, rank_bytes_.size(),
                 [&](std::size_t t, std::size_t in_packed, std::size_t in_tensor, std::size_t bytes) {
                   std::memcpy(static_cast<std::uint8_t*>(apart[t]) + in_tensor, from + in_packed, bytes);
                 });
}

std::vector<std::int64_t> even_rows(std::int64_t rows, int size) {
  std::vector<std::int64_t> shares;
  for (int rank = 0; rank < size; ++rank) {
    const Range share =
        split(static_cast<std::size_t>(rows), static_cast<std::size_t>(size), static_cast<std::size_t>(rank));
    shares.push_back(static_cast<std::int64_t>(share.size()));
  }
  return shares;
}

}  // namespace hvd
