#include "runtime/device/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "runtime/device/adasum_body.h"

namespace hvd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarpsOfBlock = kThreads / kWarpLanes;
// The number of blocks that each multiprocessor runs at once: enough loads in progress to use the full memory
// bandwidth.
constexpr unsigned kBlocksOfMultiprocessor = 8;
// This many tables are kept for steps that come again; further ones only while they are in use.
constexpr std::size_t kKeptTables = 16;
constexpr std::size_t kLeastTableBytes = 1U << 16U;  // for 1600 pieces

std::uint64_t unit_of(Dtype from, Dtype to) {
  return kVectorBytes / std::min(size_of(from), size_of(to));
}

bool is_same(const Move& a, const Move& b) {
  return a.from == b.from && a.to == b.to && a.count == b.count && a.padded == b.padded;
}

bool is_cast(Dtype from, Dtype to) {
  const auto has_16_bits = [](Dtype type) { return type == Dtype::kFloat16 || type == Dtype::kBfloat16; };
  return (from == Dtype::kFloat32 && has_16_bits(to)) || (has_16_bits(from) && to == Dtype::kFloat32);
}

bool is_multiple(const void* address, std::size_t of) {
  return reinterpret_cast<std::uintptr_t>(address) % of == 0;
}

// Plan numbers the moves of the pieces that are not empty.
struct Plan {
  std::uint64_t chunks = 0;
  bool is_aligned = true;
};

// `place(piece, offset)` returns the piece's Move without its first_chunk; `offset` is its position in the buffer.
template <typename Place>
Plan plan_moves(std::span<const DevicePiece> pieces, Dtype from, Dtype to, Dtype packed, std::vector<Move>& moves,
                const Place& place) {
  Plan plan;
  std::size_t offset = 0;
  moves.clear();
  for (const DevicePiece& piece : pieces) {
    if (piece.count == 0) {
      continue;
    }
    Move move = place(piece, offset);
    move.first_chunk = plan.chunks;
    plan.chunks += chunks_of(move.padded, unit_of(from, to));
    plan.is_aligned = plan.is_aligned && is_multiple(move.from, size_of(from)) && is_multiple(move.to, size_of(to));
    offset += packed_bytes(piece.count, packed);
    moves.push_back(move);
  }
  return plan;
}

// Turns the moves into copies of bytes, which is all that is possible with unaligned addresses.
Plan as_bytes(std::vector<Move>& moves, std::size_t element_bytes) {
  Plan plan{0, false};
  for (Move& move : moves) {
    move.count *= element_bytes;
    move.padded *= element_bytes;
    move.first_chunk = plan.chunks;
    plan.chunks += chunks_of(move.padded, kVectorBytes);
  }
  return plan;
}

Error no_cast(Dtype from, Dtype to, bool is_aligned) {
  return Error(Code::kInvalid, is_aligned ? std::string("the device casts no ") + name_of(from) + " to " + name_of(to)
                                          : std::string("a tensor of ") + name_of(from) +
                                                " lies at an odd address, where it can only be copied as it is");
}

}  // namespace

std::size_t packed_bytes(std::span<const DevicePiece> pieces, Dtype dtype) {
  std::size_t sum = 0;
  for (const DevicePiece& piece : pieces) {
    sum += packed_bytes(piece.count, dtype);
  }
  return sum;
}

std::string move_kernel(Dtype from, Dtype to, Scale scale, bool is_aligned) {
  if (from == to && scale.is_one()) {
    return "hvd_move_copy" + std::to_string(is_aligned ? size_of(from) : 1);
  }
  if (!is_aligned || (from != to && !is_cast(from, to))) {
    return "";
  }
  return std::string("hvd_move_") + name_of(from) + (from == to ? "" : std::string("_") + name_of(to));
}

Result<void> DeviceKernels::pack(StreamHandle stream, std::span<const DevicePiece> pieces, void* buffer, Dtype from,
                                 Dtype to, Scale scale) {
  auto* bytes = static_cast<std::uint8_t*>(buffer);
  const Plan plan = plan_moves(pieces, from, to, to, moves_, [&](const DevicePiece& piece, std::size_t offset) {
    return Move{static_cast<const std::uint8_t*>(piece.input), bytes + offset, piece.count,
                packed_bytes(piece.count, to) / size_of(to), 0};
  });
  return cast_moves(stream, from, to, scale, plan.chunks, plan.is_aligned);
}

Result<void> DeviceKernels::unpack(StreamHandle stream, std::span<const DevicePiece> pieces, const void* buffer,
                                   Dtype from, Dtype to, Scale scale) {
  const auto* bytes = static_cast<const std::uint8_t*>(buffer);
  const Plan plan = plan_moves(pieces, from, to, from, moves_, [&](const DevicePiece& piece, std::size_t offset) {
    return Move{bytes + offset, static_cast<std::uint8_t*>(piece.output), piece.count, piece.count, 0};
  });
  return cast_moves(stream, from, to, scale, plan.chunks, plan.is_aligned);
}

// Runs moves_ as planned, with the kernel for these types.
Result<void> DeviceKernels::cast_moves(StreamHandle stream, Dtype from, Dtype to, Scale scale, std::uint64_t chunks,
                                       bool is_aligned) {
  const std::string kernel = move_kernel(from, to, scale, is_aligned);
  if (kernel.empty()) {
    return no_cast(from, to, is_aligned);
  }
  return launch_moves(stream, moves_, kernel, scale, is_aligned ? chunks : as_bytes(moves_, size_of(from)).chunks);
}

Result<void> DeviceKernels::launch_moves(StreamHandle stream, std::span<const Move> moves, const std::string& kernel,
                                         Scale scale, std::uint64_t chunks) {
  if (moves.empty()) {
    return {};
  }
  HVD_TRY_ASSIGN(const KernelHandle function, device_->kernel(kernel));
  MoveList list;
  list.count = static_cast<std::uint32_t>(moves.size());
  list.chunks = chunks;
  list.scale = scale;
  Table* table = nullptr;
  if (moves.size() <= kInlineMoves) {
    std::copy(moves.begin(), moves.end(), list.own);
  } else {
    HVD_TRY_ASSIGN(table, table_of(stream, moves));
    list.moves = static_cast<const Move*>(table->there.data());
  }
  const std::uint64_t most = static_cast<std::uint64_t>(device_->info().multiprocessors) * kBlocksOfMultiprocessor;
  const std::uint64_t wanted = (chunks + kWarpsOfBlock - 1) / kWarpsOfBlock;
  const LaunchSize size{static_cast<unsigned>(std::min(wanted, std::max<std::uint64_t>(most, 1))), kThreads};
  void* argument = &list;
  HVD_TRY(device_->launch(function, size, std::span<void* const>(&argument, 1), stream));
  return table != nullptr ? table->used.record(stream) : Result<void>();
}

// Returns the table of these moves; a step that comes again finds its table on the device.
Result<DeviceKernels::Table*> DeviceKernels::table_of(StreamHandle stream, std::span<const Move> moves) {
  const auto known = std::find_if(tables_.begin(), tables_.end(), [&](const Table& table) {
    return table.stream == stream &&
           std::equal(moves.begin(), moves.end(), table.moves.begin(), table.moves.end(), is_same);
  });
  if (known != tables_.end()) {
    std::rotate(known, known + 1, tables_.end());
    return &tables_.back();
  }
  const std::size_t size_bytes = moves.size_bytes();
  HVD_TRY_ASSIGN(const std::size_t at, free_table(size_bytes));
  Table& table = tables_.at(at);
  table.moves.clear();  // it is no step's table if the copy fails
  std::memcpy(table.staged.data(), moves.data(), size_bytes);
  HVD_TRY(device_->copy(table.there.data(), table.staged.data(), size_bytes, stream));
  table.stream = stream;
  table.moves.assign(moves.begin(), moves.end());
  std::rotate(tables_.begin() + static_cast<std::ptrdiff_t>(at), tables_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
              tables_.end());
  return &tables_.back();
}

// Returns a table that nothing on the device reads any more: the least recently used one, or a new one.
Result<std::size_t> DeviceKernels::free_table(std::size_t size_bytes) {
  if (tables_.size() >= kKeptTables) {
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      HVD_TRY_ASSIGN(const bool is_done, tables_[i].used.is_done());
      if (is_done && tables_[i].there.size_bytes() >= size_bytes) {
        return i;
      }
    }
  }
  const std::size_t room = std::max(std::bit_ceil(size_bytes), kLeastTableBytes);
  Table made;
  HVD_TRY_ASSIGN(made.staged, PinnedMemory::make(device_, room));
  HVD_TRY_ASSIGN(made.there, DeviceMemory::make(device_, room));
  HVD_TRY_ASSIGN(made.used, Event::make(device_));
  tables_.push_back(std::move(made));
  return tables_.size() - 1;
}

Result<void> DeviceKernels::adasum(StreamHandle stream, std::span<void* const> vectors, std::size_t count,
                                   Dtype dtype) {
  HVD_TRY(check_vectors(vectors, dtype));
  return vectors.size() < 2 || count == 0 ? Result<void>() : combine(stream, vectors, count, dtype, false);
}

Result<void> DeviceKernels::average(StreamHandle stream, std::span<void* const> vectors, std::size_t count,
                                    Dtype dtype) {
  HVD_TRY(check_vectors(vectors, dtype));
  return vectors.size() < 2 || count == 0 ? Result<void>() : combine(stream, vectors, count, dtype, true);
}

Result<void> DeviceKernels::check_vectors(std::span<void* const> vectors, Dtype dtype) {
  if (!is_floating(dtype)) {
    return Error(Code::kInvalid, std::string("Adasum is for floating types, not ") + name_of(dtype));
  }
  for (const void* vector : vectors) {
    if (!is_multiple(vector, size_of(dtype))) {
      return no_cast(dtype, dtype, false);
    }
  }
  return {};
}

Result<void> DeviceKernels::combine(StreamHandle stream, std::span<void* const> vectors, std::size_t count, Dtype dtype,
                                    bool is_average) {
  if (vectors.size() == 1) {
    return {};
  }
  const std::size_t middle = std::bit_floor(vectors.size() - 1);
  HVD_TRY(combine(stream, vectors.first(middle), count, dtype, is_average));
  HVD_TRY(combine(stream, vectors.subspan(middle), count, dtype, is_average));
  AdasumPair pair{vectors[0], vectors[middle], vectors[0], count, nullptr};
  if (is_average) {
    const double share = static_cast<double>(middle) / static_cast<double>(vectors.size());
    pair.fixed = {share, 1.0 - share};
  } else {
    HVD_TRY_ASSIGN(pair.partial, products_of(stream));
    HVD_TRY(launch(stream, "hvd_adasum_products_", LaunchSize{kProductBlocks, kProductThreads}, pair, dtype));
  }
  const auto most = static_cast<std::size_t>(device_->info().multiprocessors) * kBlocksOfMultiprocessor;
  const std::size_t wanted = (count + kProductThreads - 1) / kProductThreads;
  const LaunchSize size{static_cast<unsigned>(std::min(wanted, std::max<std::size_t>(most, 1))), kProductThreads};
  return launch(stream, "hvd_adasum_combine_", size, pair, dtype);
}

Result<void> DeviceKernels::launch(StreamHandle stream, const std::string& kernel, LaunchSize size, AdasumPair& pair,
                                   Dtype dtype) {
  HVD_TRY_ASSIGN(const KernelHandle handle, device_->kernel(kernel + name_of(dtype)));
  void* argument = &pair;
  return device_->launch(handle, size, std::span<void* const>(&argument, 1), stream);
}

// The memory for the inner products of a stream's pairs.
Result<Products*> DeviceKernels::products_of(StreamHandle stream) {
  auto known = std::find(sum_streams_.begin(), sum_streams_.end(), stream);
  if (known == sum_streams_.end()) {
    HVD_TRY_ASSIGN(auto sums, DeviceMemory::make(device_, kProductBlocks * sizeof(Products)));
    sums_.push_back(std::move(sums));
    known = sum_streams_.insert(sum_streams_.end(), stream);
  }
  return static_cast<Products*>(sums_.at(static_cast<std::size_t>(known - sum_streams_.begin())).data());
}

}  // namespace hvd
