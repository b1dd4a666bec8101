#include "runtime/algo/node_collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr std::size_t kElementBytes = 8;  // of the largest type
// Measured on two cores with 64 MiB of float32: small enough that a chunk is still in the cache at its next stage,
// large enough that the barriers between do not show.
constexpr std::size_t kMaxChunkBytes = 512U << 10U;

// Below this a second barrier costs more than what all ranks then compute alike; and so much each of them may read.
constexpr std::size_t kSmallBytes = 4U << 10U;
constexpr std::size_t kSmallBytesRead = 32U << 10U;

// What is reduced at a time where nothing is copied: two such blocks and what they are made of fit into a core's cache.
constexpr std::size_t kBlockBytes = 16U << 10U;

std::size_t chunks_for(std::size_t size_bytes, std::size_t chunk_bytes) {
  return (size_bytes + chunk_bytes - 1) / chunk_bytes;
}

Range chunk_of(std::size_t size_bytes, std::size_t chunk_bytes, std::size_t chunk) {
  return Range{std::min(size_bytes, chunk * chunk_bytes), std::min(size_bytes, (chunk + 1) * chunk_bytes)};
}

std::size_t longest_of(std::span<const Range> pieces) {
  std::size_t longest = 0;
  for (const Range& piece : pieces) {
    longest = std::max(longest, piece.size());
  }
  return longest;
}

// Also right for nothing at no address.
void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t size_bytes) {
  if (size_bytes != 0) {
    std::memcpy(to, from, size_bytes);
  }
}

// Goes through pieces from their beginning to their end, once.
class PieceCursor {
 public:
  explicit PieceCursor(std::span<const Piece> pieces) : pieces_(pieces) {}

  void copy_inputs(std::uint8_t* to, std::size_t size_bytes) {
    advance(size_bytes, [&to](const Piece& piece, std::size_t at, std::size_t bytes) {
      copy(to, static_cast<const std::uint8_t*>(piece.input) + at, bytes);
      to += bytes;
    });
  }
  void copy_to_outputs(const std::uint8_t* from, std::size_t size_bytes) {
    advance(size_bytes, [&from](const Piece& piece, std::size_t at, std::size_t bytes) {
      copy(static_cast<std::uint8_t*>(piece.output) + at, from, bytes);
      from += bytes;
    });
  }

 private:
  template <typename Take>
  void advance(std::size_t size_bytes, const Take& take) {
    while (size_bytes > 0) {
      const Piece& piece = pieces_.front();
      const std::size_t bytes = std::min(size_bytes, piece.size_bytes - at_);
      take(piece, at_, bytes);
      size_bytes -= bytes;
      at_ += bytes;
      if (at_ == piece.size_bytes) {
        pieces_ = pieces_.subspan(1);
        at_ = 0;
      }
    }
  }

  std::span<const Piece> pieces_;
  std::size_t at_ = 0;  // in the first of them
};

}  // namespace

NodeCollectives::NodeCollectives(ShmSegment* shm) : shm_(shm) {
  if (shm_ != nullptr) {
    const std::size_t fits = shm_->slot_bytes() / kBuffers / kCacheLineBytes * kCacheLineBytes;
    chunk_bytes_ = std::min(fits, kMaxChunkBytes);
    const std::size_t lane = chunk_bytes_ / static_cast<std::size_t>(shm_->local_size());
    // Two ranks never write one cache line, unless there are more of them than lines.
    lane_bytes_ =
        lane / kCacheLineBytes > 0 ? lane / kCacheLineBytes * kCacheLineBytes : lane / kElementBytes * kElementBytes;
    HVD_CHECK(lane_bytes_ > 0);
  }
}

std::uint8_t* NodeCollectives::buffer(int local_rank, std::size_t chunk) const {
  return shm_->slot(local_rank) + (first_chunk_ + chunk) % kBuffers * chunk_bytes_;
}

std::uint8_t* NodeCollectives::lane(int from, std::size_t chunk, int to) const {
  return buffer(from, chunk) + static_cast<std::size_t>(to) * lane_bytes_;
}

Result<void> NodeCollectives::run_pipeline(std::size_t chunk_count, std::size_t stage_count, const Stage& stage,
                                           Interrupt& interrupt) {
  if (chunk_count == 0) {
    return {};
  }
  const std::size_t phase_count = chunk_count + stage_count - 1;
  for (std::size_t phase = 0; phase < phase_count; ++phase) {
    for (std::size_t s = 0; s < stage_count && s <= phase; ++s) {
      if (phase - s < chunk_count) {
        stage(s, phase - s);
      }
    }
    if (phase + 1 < phase_count) {
      HVD_TRY(shm_->barrier(interrupt));
    }
  }
  first_chunk_ += chunk_count;
  return {};
}

// One barrier: every rank that takes the result reads all slots, in the same order.
Result<void> NodeCollectives::reduce_small(const Reduction& what, Interrupt& interrupt) {
  const std::size_t count = what.size_bytes / size_of(what.dtype);
  std::uint8_t* own = buffer(shm_->local_rank(), 0);
  PieceCursor(what.pieces).copy_inputs(own, what.size_bytes);
  scale_in_place(own, count, what.dtype, what.scales.before);
  HVD_TRY(shm_->barrier(interrupt));
  if (what.takes_result) {
    alignas(kCacheLineBytes) std::array<std::uint8_t, kSmallBytes> result;  // NOLINT: filled by the copy
    copy(result.data(), buffer(0, 0), what.size_bytes);
    for (int other = 1; other < shm_->local_size(); ++other) {
      reduce_into(result.data(), buffer(other, 0), count, what.dtype, what.op);
    }
    scale_in_place(result.data(), count, what.dtype, what.scales.after);
    PieceCursor(what.pieces).copy_to_outputs(result.data(), what.size_bytes);
  }
  first_chunk_ += 1;
  return {};
}

// Every rank reduces its share of the elements into slot 0; shares end at cache lines, so that no two write one.
void NodeCollectives::reduce_share(const Reduction& what, std::size_t chunk, std::size_t chunk_bytes) {
  const auto self = static_cast<std::size_t>(shm_->local_rank());
  const auto ranks = static_cast<std::size_t>(shm_->local_size());
  const Range share = split(chunk_bytes, ranks, self, kCacheLineBytes);
  const std::size_t count = share.size() / size_of(what.dtype);
  std::uint8_t* into = buffer(0, chunk) + share.begin;
  for (int other = 1; other < shm_->local_size(); ++other) {
    reduce_into(into, buffer(other, chunk) + share.begin, count, what.dtype, what.op);
  }
  scale_in_place(into, count, what.dtype, what.scales.after);
}

Result<void> NodeCollectives::reduce(const Reduction& what, Interrupt& interrupt) {
  const auto ranks = static_cast<std::size_t>(shm_->local_size());
  const std::size_t bytes = what.size_bytes;
  if (bytes != 0 && bytes <= std::min(kSmallBytes, chunk_bytes_) && bytes * ranks <= kSmallBytesRead) {
    return reduce_small(what, interrupt);
  }
  PieceCursor in(what.pieces);
  PieceCursor out(what.pieces);
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    const std::size_t chunk_bytes = chunk_of(bytes, chunk_bytes_, chunk).size();
    if (s == 0) {
      std::uint8_t* own = buffer(shm_->local_rank(), chunk);
      in.copy_inputs(own, chunk_bytes);
      scale_in_place(own, chunk_bytes / size_of(what.dtype), what.dtype, what.scales.before);
    } else if (s == 1) {
      reduce_share(what, chunk, chunk_bytes);
    } else if (what.takes_result) {
      out.copy_to_outputs(buffer(0, chunk), chunk_bytes);
    }
  };
  static constexpr std::size_t kStages = 3;  // copy in, reduce, copy out
  static_assert(kStages <= kBuffers);
  return run_pipeline(chunks_for(bytes, chunk_bytes_), kStages, stage, interrupt);
}

Result<void> NodeCollectives::reduce(const void* input, void* out, std::size_t count, Dtype dtype, ReduceOp op,
                                     ResultTo result_to, Interrupt& interrupt) {
  const std::size_t bytes = count * size_of(dtype);
  if (shm_ == nullptr) {
    if (input != out) {
      copy(static_cast<std::uint8_t*>(out), static_cast<const std::uint8_t*>(input), bytes);
    }
    return {};
  }
  const Piece piece{input, out, bytes};
  const bool takes_result = result_to == ResultTo::kAll || shm_->local_rank() == 0;
  return reduce(Reduction{std::span(&piece, 1), bytes, dtype, op, {}, takes_result}, interrupt);
}

Result<void> NodeCollectives::reduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                            Interrupt& interrupt) {
  HVD_CHECK(shm_ != nullptr);
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) {
    bytes += piece.size_bytes;
  }
  return reduce(Reduction{pieces, bytes, dtype, op, scales, true}, interrupt);
}

// One block of this rank's share: small enough to stay in the cache from the first reading to the last writing.
void NodeCollectives::reduce_block(std::size_t offset, std::size_t size_bytes, Dtype dtype, ReduceOp op,
                                   Scales scales) const {
  alignas(kCacheLineBytes) std::array<std::uint8_t, kBlockBytes> result;  // NOLINT: filled by the copy
  alignas(kCacheLineBytes) std::array<std::uint8_t, kBlockBytes> scaled;  // NOLINT: likewise, where it is used
  const std::size_t count = size_bytes / size_of(dtype);
  copy(result.data(), shm_->arena(0) + offset, size_bytes);
  scale_in_place(result.data(), count, dtype, scales.before);
  for (int other = 1; other < shm_->local_size(); ++other) {
    const std::uint8_t* from = shm_->arena(other) + offset;
    if (scales.before != 1.0) {
      copy(scaled.data(), from, size_bytes);
      scale_in_place(scaled.data(), count, dtype, scales.before);
      from = scaled.data();
    }
    reduce_into(result.data(), from, count, dtype, op);
  }
  scale_in_place(result.data(), count, dtype, scales.after);
  for (int rank = 0; rank < shm_->local_size(); ++rank) {
    copy(shm_->arena(rank) + offset, result.data(), size_bytes);
  }
}

Result<void> NodeCollectives::reduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op,
                                            Scales scales, Interrupt& interrupt) {
  HVD_CHECK(shm_ != nullptr);
  std::size_t total = 0;
  for (const SharedPiece& piece : pieces) {
    total += piece.size_bytes;
  }
  const Range share = split(total, static_cast<std::size_t>(shm_->local_size()),
                            static_cast<std::size_t>(shm_->local_rank()), kCacheLineBytes);
  std::size_t before = 0;  // bytes of the pieces before this one
  for (const SharedPiece& piece : pieces) {
    const std::size_t begin = std::max(share.begin, before);
    const std::size_t end = std::min(share.end, before + piece.size_bytes);
    for (std::size_t at = begin; at < end; at += kBlockBytes) {
      reduce_block(piece.offset + at - before, std::min(kBlockBytes, end - at), dtype, op, scales);
    }
    before += piece.size_bytes;
  }
  return shm_->barrier(interrupt);
}

Result<void> NodeCollectives::reduce_scatter(const void* input, std::span<const Range> pieces, void* out, Dtype dtype,
                                             ReduceOp op, Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const int self = shm_ == nullptr ? 0 : shm_->local_rank();
  const Range own = pieces[static_cast<std::size_t>(self)];
  if (shm_ == nullptr) {
    copy(bytes, in + own.begin, own.size());
    return {};
  }
  // A chunk has a lane for each rank's piece, so that all ranks have something to reduce in every phase.
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    if (s == 0) {
      for (int other = 0; other < shm_->local_size(); ++other) {
        const Range& piece = pieces[static_cast<std::size_t>(other)];
        const Range range = chunk_of(piece.size(), lane_bytes_, chunk);
        if (other != self) {
          copy(lane(self, chunk, other), in + piece.begin + range.begin, range.size());
        }
      }
      return;
    }
    const Range range = chunk_of(own.size(), lane_bytes_, chunk);
    for (int other = 0; other < shm_->local_size(); ++other) {
      const std::uint8_t* from = other == self ? in + own.begin + range.begin : lane(other, chunk, self);
      if (other == 0) {
        copy(bytes + range.begin, from, range.size());
      } else {
        reduce_into(bytes + range.begin, from, range.size() / size_of(dtype), dtype, op);
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, reduce out
  return run_pipeline(chunks_for(longest_of(pieces), lane_bytes_), kStages, stage, interrupt);
}

Result<void> NodeCollectives::alltoall(const void* input, std::span<const Range> send, void* out,
                                       std::span<const Range> recv, std::size_t longest, Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const auto self = static_cast<std::size_t>(shm_ == nullptr ? 0 : shm_->local_rank());
  copy(bytes + recv[self].begin, in + send[self].begin, send[self].size());
  if (shm_ == nullptr) {
    return {};
  }
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    for (int other = 0; other < shm_->local_size(); ++other) {
      const Range& piece = (s == 0 ? send : recv)[static_cast<std::size_t>(other)];
      const Range range = chunk_of(piece.size(), lane_bytes_, chunk);
      if (other == shm_->local_rank()) {
        continue;
      }
      if (s == 0) {
        copy(lane(shm_->local_rank(), chunk, other), in + piece.begin + range.begin, range.size());
      } else {
        copy(bytes + piece.begin + range.begin, lane(other, chunk, shm_->local_rank()), range.size());
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(longest, lane_bytes_), kStages, stage, interrupt);
}

Result<void> NodeCollectives::broadcast(void* data, std::size_t size_bytes, int local_root, Interrupt& interrupt) {
  if (shm_ == nullptr) {
    return {};
  }
  auto* bytes = static_cast<std::uint8_t*>(data);
  const bool is_root = shm_->local_rank() == local_root;
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    const Range range = chunk_of(size_bytes, chunk_bytes_, chunk);
    if (s == 0 && is_root) {
      copy(buffer(local_root, chunk), bytes + range.begin, range.size());
    } else if (s == 1 && !is_root) {
      copy(bytes + range.begin, buffer(local_root, chunk), range.size());
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(size_bytes, chunk_bytes_), kStages, stage, interrupt);
}

Result<void> NodeCollectives::allgather(const void* input, std::span<const Range> pieces, void* out,
                                        Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const int self = shm_ == nullptr ? 0 : shm_->local_rank();
  const Range own = pieces[static_cast<std::size_t>(self)];
  if (in != bytes + own.begin) {
    copy(bytes + own.begin, in, own.size());
  }
  if (shm_ == nullptr) {
    return {};
  }
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    if (s == 0) {
      const Range range = chunk_of(own.size(), chunk_bytes_, chunk);
      copy(buffer(self, chunk), in + range.begin, range.size());
      return;
    }
    for (int other = 0; other < shm_->local_size(); ++other) {
      const Range& piece = pieces[static_cast<std::size_t>(other)];
      const Range range = chunk_of(piece.size(), chunk_bytes_, chunk);
      if (other != self) {
        copy(bytes + piece.begin + range.begin, buffer(other, chunk), range.size());
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(longest_of(pieces), chunk_bytes_), kStages, stage, interrupt);
}

Result<void> NodeCollectives::barrier(Interrupt& interrupt) {
  return shm_ == nullptr ? Result<void>() : shm_->barrier(interrupt);
}

}  // namespace hvd
