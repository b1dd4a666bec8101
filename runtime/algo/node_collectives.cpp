#include "runtime/algo/node_collectives.h"

#include <algorithm>
#include <cstring>

#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr std::size_t kElementBytes = 8;  // of the largest type

// A rank reduces at most a quarter of chunk_bytes at a time. Measured with two ranks and 1 to 16 MiB: its working set
// (its own and the other's data, published and reduced) then stays in its second-level cache of 2 MiB.
constexpr std::size_t kMostSharesOfChunk = 4;

std::size_t longest_of(std::span<const Range> pieces) {
  std::size_t longest = 0;
  for (const Range& piece : pieces) {
    longest = std::max(longest, piece.size());
  }
  return longest;
}

}  // namespace

NodeCollectives::NodeCollectives(ShmSegment* shm, const Tuning& tuning) : shm_(shm) {
  if (shm_ != nullptr) {
    const std::size_t fits = shm_->slot_bytes() / kBuffers / kCacheLineBytes * kCacheLineBytes;
    chunk_bytes_ = std::min(fits, tuning.chunk_bytes);
    const std::size_t shares = std::min<std::size_t>(kMostSharesOfChunk, static_cast<std::size_t>(shm_->local_size()));
    reduced_bytes_ =
        std::max(kCacheLineBytes, chunk_bytes_ * shares / kMostSharesOfChunk / kCacheLineBytes * kCacheLineBytes);
    small_bytes_ = std::min(
        {chunk_bytes_, tuning.small_bytes, tuning.small_read_bytes / static_cast<std::size_t>(shm_->local_size())});
    const std::size_t lane = chunk_bytes_ / static_cast<std::size_t>(shm_->local_size());
    // Two ranks never write to the same cache line, unless there are more ranks than lines.
    lane_bytes_ =
        lane / kCacheLineBytes > 0 ? lane / kCacheLineBytes * kCacheLineBytes : lane / kElementBytes * kElementBytes;
    HVD_CHECK(lane_bytes_ > 0);
    operands_.resize(static_cast<std::size_t>(shm_->local_size()));
  }
}

std::uint8_t* NodeCollectives::buffer(int local_rank, std::size_t chunk) const {
  return shm_->slot(local_rank) + buffer_at(chunk);
}

std::uint8_t* NodeCollectives::lane(int from, std::size_t chunk, int to) const {
  return buffer(from, chunk) + static_cast<std::size_t>(to) * lane_bytes_;
}

Result<void> NodeCollectives::run_pipeline(std::size_t chunk_count, std::size_t stage_count, const Stage& stage,
                                           Interrupt& interrupt) {
  const auto run_stages = [&](std::size_t phase) {
    for (std::size_t s = 0; s < stage_count && s <= phase; ++s) {
      if (phase - s < chunk_count) {
        stage(s, phase - s);
      }
    }
  };
  return run_phases(chunk_count, stage_count, std::ref(run_stages), interrupt);
}

Result<void> NodeCollectives::run_phases(std::size_t chunk_count, std::size_t stage_count, const Phase& phase,
                                         Interrupt& interrupt) {
  if (chunk_count == 0) {
    return {};
  }
  const std::size_t phase_count = chunk_count + stage_count - 1;
  for (std::size_t number = 0; number < phase_count; ++number) {
    phase(number);
    if (number + 1 < phase_count) {
      HVD_TRY(shm_->barrier(interrupt));
    }
  }
  first_chunk_ += chunk_count;
  return {};
}

Result<void> NodeCollectives::reduce_scatter(const void* input, std::span<const Range> pieces, void* out, Dtype dtype,
                                             ReduceOp op, Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const int self = shm_ == nullptr ? 0 : shm_->local_rank();
  const Range own = pieces[static_cast<std::size_t>(self)];
  if (shm_ == nullptr) {
    copy_bytes(bytes, in + own.begin, own.size());
    return {};
  }
  // A chunk has a lane for each rank's piece, so that all ranks have something to reduce in every phase.
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    if (s == 0) {
      for (int other = 0; other < shm_->local_size(); ++other) {
        const Range& piece = pieces[static_cast<std::size_t>(other)];
        const Range range = chunk_of(piece.size(), lane_bytes_, chunk);
        if (other != self) {
          copy_bytes(lane(self, chunk, other), in + piece.begin + range.begin, range.size());
        }
      }
      return;
    }
    const Range range = chunk_of(own.size(), lane_bytes_, chunk);
    for (int other = 0; other < shm_->local_size(); ++other) {
      const std::uint8_t* from = other == self ? in + own.begin + range.begin : lane(other, chunk, self);
      if (other == 0) {
        copy_bytes(bytes + range.begin, from, range.size());
      } else {
        reduce_into(bytes + range.begin, from, range.size() / size_of(dtype), dtype, op);
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, reduce out
  return run_pipeline(chunks_for(longest_of(pieces), lane_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::alltoall(const void* input, std::span<const Range> send, void* out,
                                       std::span<const Range> recv, std::size_t longest, Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const auto self = static_cast<std::size_t>(shm_ == nullptr ? 0 : shm_->local_rank());
  copy_bytes(bytes + recv[self].begin, in + send[self].begin, send[self].size());
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
        copy_bytes(lane(shm_->local_rank(), chunk, other), in + piece.begin + range.begin, range.size());
      } else {
        copy_bytes(bytes + piece.begin + range.begin, lane(other, chunk, shm_->local_rank()), range.size());
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(longest, lane_bytes_), kStages, std::ref(stage), interrupt);
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
      copy_bytes(buffer(local_root, chunk), bytes + range.begin, range.size());
    } else if (s == 1 && !is_root) {
      copy_bytes(bytes + range.begin, buffer(local_root, chunk), range.size());
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(size_bytes, chunk_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::allgather(const void* input, std::span<const Range> pieces, void* out,
                                        Interrupt& interrupt) {
  const auto* in = static_cast<const std::uint8_t*>(input);
  auto* bytes = static_cast<std::uint8_t*>(out);
  const int self = shm_ == nullptr ? 0 : shm_->local_rank();
  const Range own = pieces[static_cast<std::size_t>(self)];
  if (in != bytes + own.begin) {
    copy_bytes(bytes + own.begin, in, own.size());
  }
  if (shm_ == nullptr) {
    return {};
  }
  const auto stage = [&](std::size_t s, std::size_t chunk) {
    if (s == 0) {
      const Range range = chunk_of(own.size(), chunk_bytes_, chunk);
      copy_bytes(buffer(self, chunk), in + range.begin, range.size());
      return;
    }
    for (int other = 0; other < shm_->local_size(); ++other) {
      const Range& piece = pieces[static_cast<std::size_t>(other)];
      const Range range = chunk_of(piece.size(), chunk_bytes_, chunk);
      if (other != self) {
        copy_bytes(bytes + piece.begin + range.begin, buffer(other, chunk), range.size());
      }
    }
  };
  static constexpr std::size_t kStages = 2;  // copy in, copy out
  return run_pipeline(chunks_for(longest_of(pieces), chunk_bytes_), kStages, std::ref(stage), interrupt);
}

Result<void> NodeCollectives::barrier(Interrupt& interrupt) {
  return shm_ == nullptr ? Result<void>() : shm_->barrier(interrupt);
}

}  // namespace hvd
