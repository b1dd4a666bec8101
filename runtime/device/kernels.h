// DeviceKernels are our GPU kernels as functions. Each puts its work on a stream and returns; none waits for the
// device.
//
// One launch packs any number of pieces of memory into one buffer, or unpacks them again. The position of a piece in
// the buffer follows two rules:
// - A piece begins at a multiple of kPackGrain bytes, in the order given, so that it can be read 16 bytes at a time.
// - pack() zeroes the bytes between a piece's end and the next one's begin, so that a reduction of the whole buffer
//   reads no garbage. A piece without elements takes no room.
// packed_bytes() is the sum. The layout depends on the counts alone, and is the same on every rank.
//
// Thread: one at a time. Move-only; keeps the device alive. What was put on streams must be done before this object is
// destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/core/scale.h"
#include "runtime/device/device.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/move_body.h"
#include "runtime/device/stream.h"

namespace hvd {

// DevicePiece is a contiguous tensor of the caller. pack() reads `input` and unpack() writes `output`, which may be the
// same. Each address is a multiple of the element's size.
struct DevicePiece {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements
};

inline constexpr std::size_t kPackGrain = 256;

constexpr std::size_t packed_bytes(std::size_t count, Dtype dtype) {
  return (count * size_of(dtype) + kPackGrain - 1) / kPackGrain * kPackGrain;
}
// The size of the buffer, whose elements are of `dtype`.
std::size_t packed_bytes(std::span<const DevicePiece> pieces, Dtype dtype);

// Returns the name of the kernel that converts elements of `from` to elements of `to`; empty if there is none. Kernels
// cast float32 to and from float16 and bfloat16, and copy every type to itself. `is_aligned`: every address is a
// multiple of its element's size; otherwise elements can only be copied.
std::string move_kernel(Dtype from, Dtype to, Scale scale, bool is_aligned);

struct AdasumPair;
struct Products;

class DeviceKernels {
 public:
  explicit DeviceKernels(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // Computes buffer <- cast(input scaled) for each piece, rounded once to nearest even. Integers are scaled in float64
  // and truncated toward zero. kInvalid: there is no such cast, or an address is not aligned.
  Result<void> pack(StreamHandle stream, std::span<const DevicePiece> pieces, void* buffer, Dtype from, Dtype to,
                    Scale scale);
  // Computes output <- cast(buffer scaled); `from` is the buffer's type, `to` the pieces'.
  Result<void> unpack(StreamHandle stream, std::span<const DevicePiece> pieces, const void* buffer, Dtype from,
                      Dtype to, Scale scale);

  // Computes vectors[0] <- Adasum of all vectors, in the tree of algo/adasum.h: the first 2^k, and the rest. The other
  // vectors are overwritten. For floating types; inner products are in float64, and each level is rounded to `dtype`.
  // Each pair takes two launches.
  Result<void> adasum(StreamHandle stream, std::span<void* const> vectors, std::size_t count, Dtype dtype);
  // Computes vectors[0] <- the average of all vectors, in the same tree, with the same types and rounding. Each pair
  // takes one launch.
  Result<void> average(StreamHandle stream, std::span<void* const> vectors, std::size_t count, Dtype dtype);

 private:
  // Table holds moves that are too many for a launch's arguments: the host's copy of them, and the device's.
  struct Table {
    StreamHandle stream = nullptr;
    std::vector<Move> moves;
    PinnedMemory staged;
    DeviceMemory there;
    Event used;  // after the last launch that reads it
  };

  Result<void> cast_moves(StreamHandle stream, Dtype from, Dtype to, Scale scale, std::uint64_t chunks,
                          bool is_aligned);
  Result<void> launch_moves(StreamHandle stream, std::span<const Move> moves, const std::string& kernel, Scale scale,
                            std::uint64_t chunks);
  Result<Table*> table_of(StreamHandle stream, std::span<const Move> moves);
  Result<std::size_t> free_table(std::size_t size_bytes);
  static Result<void> check_vectors(std::span<void* const> vectors, Dtype dtype);
  Result<void> combine(StreamHandle stream, std::span<void* const> vectors, std::size_t count, Dtype dtype,
                       bool is_average);
  Result<void> launch(StreamHandle stream, const std::string& kernel, LaunchSize size, AdasumPair& pair, Dtype dtype);
  Result<Products*> products_of(StreamHandle stream);

  std::shared_ptr<Device> device_;
  std::vector<Move> moves_;         // of the running call; kept for its memory
  std::vector<Table> tables_;       // the most recently used one is last
  std::vector<DeviceMemory> sums_;  // one for each stream that adasum() was called with
  std::vector<StreamHandle> sum_streams_;
};

}  // namespace hvd
