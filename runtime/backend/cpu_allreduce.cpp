// CpuBackend's allreduce, for one node, for nodes of one rank each, and for the general case.
#include <algorithm>

#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/backend/cpu_backend.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr std::size_t kMaxSegments = 16;

}  // namespace

Result<void> CpuBackend::allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) {
  if (map_.node_count == 1) {
    return node_.reduce(data, data, count, dtype, op, NodeCollectives::ResultTo::kAll, interrupt);
  }
  const Piece all{data, data, count * size_of(dtype)};
  return allreduce_pieces(std::span(&all, 1), dtype, op, {}, interrupt);
}

Result<void> CpuBackend::allreduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                          Interrupt& interrupt) {
  HVD_CHECK(op != ReduceOp::kAverage);
  if (map_.node_count == 1) {
    return node_.reduce_pieces(pieces, dtype, op, scales, interrupt);
  }
  if (map_.size == map_.node_count) {
    return leaders_.allreduce(scaled(pieces, dtype, scales.before), dtype, op, scales.after, interrupt);
  }
  auto done = run_segments(pieces, dtype, op, scales, interrupt);
  if (!done.ok()) {
    wire_.stop();  // the memory belongs to the caller again
  }
  return done;
}

Result<void> CpuBackend::allreduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                          Interrupt& interrupt) {
  HVD_CHECK(takes_shared() && op != ReduceOp::kAverage);
  return node_.reduce_shared(pieces, dtype, op, scales, interrupt);
}

// Returns the same pieces, or pieces whose outputs hold the scaled inputs.
std::span<const Piece> CpuBackend::scaled(std::span<const Piece> pieces, Dtype dtype, Scale scale) {
  if (scale.is_one()) {
    return pieces;
  }
  scaled_.assign(pieces.begin(), pieces.end());
  for (Piece& piece : scaled_) {
    if (piece.output != piece.input) {
      copy_bytes(static_cast<std::uint8_t*>(piece.output), static_cast<const std::uint8_t*>(piece.input),
                 piece.size_bytes);
    }
    scale_in_place(piece.output, piece.size_bytes / size_of(dtype), dtype, scale);
    piece.input = piece.output;
  }
  return scaled_;
}

// Works in segments: while the leaders' links move one, the node's ranks pack and reduce the next, and then take the
// previous one. The number of segments is the same on all nodes, whatever their ranks.
Result<void> CpuBackend::run_segments(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                      Interrupt& interrupt) {
  const std::size_t element = size_of(dtype);
  const std::size_t count = bytes_of(pieces) / element;
  const std::size_t segments = std::clamp<std::size_t>(count * element / segment_bytes_, 1, kMaxSegments);
  const auto bytes_at = [&](std::size_t i) {
    const Range elements = split(count, segments, i);
    return Range{elements.begin * element, elements.end * element};
  };
  // A single piece is worked on in place; several pieces use staging memory for two segments at a time.
  const bool is_packed = pieces.size() != 1;
  const bool is_in_place = !is_packed && pieces.front().input == pieces.front().output;
  const std::size_t largest = bytes_at(0).size();
  std::uint8_t* staging = nullptr;
  if (is_packed) {
    HVD_TRY_ASSIGN(staging, staging_.reserve(std::min<std::size_t>(segments, 2) * largest));
  }
  const auto place_of = [&](std::size_t i) {
    return is_packed ? staging + i % 2 * largest
                     : static_cast<std::uint8_t*>(pieces.front().output) + bytes_at(i).begin;
  };
  PieceCursor inputs(pieces);
  PieceCursor outputs(pieces);
  for (std::size_t i = 0; i <= segments; ++i) {
    if (i < segments) {
      const std::size_t bytes = bytes_at(i).size();
      std::uint8_t* to = place_of(i);
      if (!is_in_place) {
        inputs.copy_inputs(to, bytes);
      }
      scale_in_place(to, bytes / element, dtype, scales.before);
      HVD_TRY(node_.reduce(to, to, bytes / element, dtype, op, NodeCollectives::ResultTo::kLeader, interrupt));
      if (map_.is_leader() && segments == 1) {
        const Piece all{to, to, bytes};
        HVD_TRY(leaders_.allreduce(std::span(&all, 1), dtype, op, scales.after, interrupt));
      } else if (map_.is_leader()) {
        wire_.order({to, to, bytes}, dtype, op, scales.after);
      }
    }
    if (i > 0) {
      if (map_.is_leader() && segments > 1) {
        HVD_TRY(wire_.wait(interrupt));
      }
      const std::size_t bytes = bytes_at(i - 1).size();
      HVD_TRY(node_.broadcast(place_of(i - 1), bytes, 0, interrupt));
      if (is_packed) {
        outputs.copy_to_outputs(place_of(i - 1), bytes);
      }
    }
  }
  return {};
}

}  // namespace hvd
