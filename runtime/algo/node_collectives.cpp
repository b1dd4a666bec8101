#include "runtime/algo/node_collectives.h"

#include <algorithm>
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

// Measured on two cores with 64 MiB of float32: small enough that a chunk is still in the cache at its next stage,
// large enough that the barriers between do not show.
constexpr std::size_t kMaxChunkBytes = 512U << 10U;

// Below this a second barrier costs more than what all ranks then compute alike; and so much each of them may read.
constexpr std::size_t kSmallBytes = 4U << 10U;
constexpr std::size_t kSmallBytesRead = 32U << 10U;

std::size_t chunks_for(std::size_t size_bytes, std::size_t chunk_bytes) {
  return (size_bytes + chunk_bytes - 1) / chunk_bytes;
}

Range chunk_of(std::size_t size_bytes, std::size_t chunk_bytes, std::size_t chunk) {
  return Range{std::min(size_bytes, chunk * chunk_bytes), std::min(size_bytes, (chunk + 1) * chunk_bytes)};
}

// Also right for nothing at no address.
void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t size_bytes) {
  if (size_bytes != 0) {
    std::memcpy(to, from, size_bytes);
  }
}

}  // namespace

NodeCollectives::NodeCollectives(ShmSegment* shm) : shm_(shm) {
  if (shm_ != nullptr) {
    const std::size_t fits = shm_->slot_bytes() / kBuffers / kCacheLineBytes * kCacheLineBytes;
    chunk_bytes_ = std::min(fits, kMaxChunkBytes);
    HVD_CHECK(chunk_bytes_ > 0);
  }
}

std::uint8_t* NodeCollectives::buffer(int local_rank, std::size_t chunk) const {
  return shm_->slot(local_rank) + (first_chunk_ + chunk) % kBuffers * chunk_bytes_;
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
Result<void> NodeCollectives::reduce_small(void* data, std::size_t count, Dtype dtype, ReduceOp op, bool takes_result,
                                           Interrupt& interrupt) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  const std::size_t size_bytes = count * size_of(dtype);
  copy(buffer(shm_->local_rank(), 0), bytes, size_bytes);
  HVD_TRY(shm_->barrier(interrupt));
  if (takes_result) {
    copy(bytes, buffer(0, 0), size_bytes);
    for (int other = 1; other < shm_->local_size(); ++other) {
      reduce_into(bytes, buffer(other, 0), count, dtype, op);
    }
  }
  first_chunk_ += 1;
  return {};
}

Result<void> NodeCollectives::reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, ResultTo result_to,
                                     Interrupt& interrupt) {
  if (shm_ == nullptr) {
    return {};
  }
  auto* bytes = static_cast<std::uint8_t*>(data);
  const std::size_t element = size_of(dtype);
  const std::size_t size_bytes = count * element;
  const auto self = static_cast<std::size_t>(shm_->local_rank());
  const auto ranks = static_cast<std::size_t>(shm_->local_size());
  const bool takes_result = result_to == ResultTo::kAll || self == 0;
  if (size_bytes != 0 && size_bytes <= std::min(kSmallBytes, chunk_bytes_) && size_bytes * ranks <= kSmallBytesRead) {
    return reduce_small(data, count, dtype, op, takes_result, interrupt);
  }
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    const Range range = chunk_of(size_bytes, chunk_bytes_, chunk);
    if (s == 0) {
      copy(buffer(shm_->local_rank(), chunk), bytes + range.begin, range.size());
    } else if (s == 1) {
      // Every rank reduces its share of the elements into slot 0; shares end at cache lines, so that no two write one.
      const Range share = split(range.size(), ranks, self, kCacheLineBytes);
      for (int other = 1; other < shm_->local_size(); ++other) {
        reduce_into(buffer(0, chunk) + share.begin, buffer(other, chunk) + share.begin, share.size() / element, dtype,
                    op);
      }
    } else if (takes_result) {
      copy(bytes + range.begin, buffer(0, chunk), range.size());
    }
  };
  static constexpr std::size_t kStages = 3;  // copy in, reduce, copy out
  static_assert(kStages <= kBuffers);
  return run_pipeline(chunks_for(size_bytes, chunk_bytes_), kStages, stage, interrupt);
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
  std::size_t longest = 0;
  for (const Range& piece : pieces) {
    longest = std::max(longest, piece.size());
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
  return run_pipeline(chunks_for(longest, chunk_bytes_), kStages, stage, interrupt);
}

Result<void> NodeCollectives::barrier(Interrupt& interrupt) {
  return shm_ == nullptr ? Result<void>() : shm_->barrier(interrupt);
}

}  // namespace hvd
