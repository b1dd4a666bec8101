#include "runtime/controller/known_wire.h"

#include "runtime/base/bytes.h"
#include "runtime/controller/message.h"

namespace hvd {
namespace {

using control_wire::kBatchBytes;
using control_wire::kMaxNameBytes;
using control_wire::kMaxPositions;
using control_wire::kSpec;

constexpr std::size_t kMaxWords = kMaxPositions / 64;
constexpr std::size_t kMinRememberedBytes = 4 + 4 + 4 + 1 + 4;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::size_t bytes_of(const PositionBits& bits) {
  return sizeof(std::uint32_t) + bits.words().size_bytes();
}

void put(std::string& out, const PositionBits& bits) {
  put(out, static_cast<std::uint32_t>(bits.words().size()));
  out.append(reinterpret_cast<const char*>(bits.words().data()), bits.words().size_bytes());
}

Result<void> read_bits(ByteReader& in, PositionBits& into) {
  const std::uint32_t count = in.count(sizeof(std::uint64_t));
  if (!in.ok() || count == 0 || count > kMaxWords) {
    return malformed("number of positions");
  }
  into.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint64_t left = in.u64(); left != 0; left &= left - 1) {
      into.set(static_cast<int>(i * 64) + std::countr_zero(left));
    }
  }
  if (!in.finished() || into.words().size() != count) {
    return malformed("positions");
  }
  return {};
}

Result<Remembered> read_remembered(ByteReader& in) {
  Remembered one;
  const std::uint32_t position = in.u32();
  one.name = in.text();
  one.priority = in.i32();
  const std::uint8_t shared = in.u8();
  const std::uint32_t dims = in.count(sizeof(std::int64_t));
  if (!in.ok() || position >= kMaxPositions || one.name.empty() || one.name.size() > kMaxNameBytes || shared > 1 ||
      dims > control_wire::kMaxFirstDims) {
    return malformed("what is to be remembered");
  }
  one.position = static_cast<std::int32_t>(position);
  one.is_shared = shared == 1;
  for (std::uint32_t i = 0; i < dims; ++i) {
    one.first_dims.push_back(in.i64());
  }
  return one;
}

}  // namespace

void append_bits(std::string& out, const KnownBits& known) {
  if (known.bits.empty()) {
    return;
  }
  append_frame_header(out, kSpec, control_wire::kBits,
                      sizeof known.process_set + sizeof known.changes + bytes_of(known.bits));
  put(out, known.process_set);
  put(out, known.changes);
  put(out, known.bits);
}

void append_hits(std::string& out, const KnownHits& hits) {
  if (hits.bits.empty()) {
    return;
  }
  append_frame_header(out, kSpec, control_wire::kHits,
                      sizeof hits.process_set + sizeof hits.fusion_bytes + 1 + bytes_of(hits.bits));
  put(out, hits.process_set);
  put(out, hits.fusion_bytes);
  put(out, static_cast<std::uint8_t>(hits.fuses_groups ? 1 : 0));
  put(out, hits.bits);
}

void append_remembered(std::string& out, std::int32_t process_set, std::span<const Remembered> items) {
  while (!items.empty()) {
    ByteWriter body;
    std::uint32_t count = 0;
    for (; count < items.size() && body.str().size() < kBatchBytes; ++count) {
      const Remembered& one = items[count];
      body.u32(static_cast<std::uint32_t>(one.position)).text(one.name).i32(one.priority).u8(one.is_shared ? 1 : 0);
      body.u32(static_cast<std::uint32_t>(one.first_dims.size()));
      for (const std::int64_t rows : one.first_dims) {
        body.i64(rows);
      }
    }
    append_frame_header(out, kSpec, control_wire::kRemember, sizeof process_set + sizeof count + body.str().size());
    put(out, process_set);
    put(out, count);
    out += body.str();
    items = items.subspan(count);
  }
}

Result<void> decode_bits(std::string_view body, KnownBits& into) {
  ByteReader in(body);
  into.process_set = in.i32();
  into.changes = in.u64();
  return read_bits(in, into.bits);
}

Result<void> decode_hits(std::string_view body, KnownHits& into) {
  ByteReader in(body);
  into.process_set = in.i32();
  into.fusion_bytes = in.u64();
  const std::uint8_t fuses_groups = in.u8();
  if (!in.ok() || fuses_groups > 1) {
    return malformed("how to fuse");
  }
  into.fuses_groups = fuses_groups == 1;
  return read_bits(in, into.bits);
}

Result<RememberedBatch> decode_remembered(std::string_view body) {
  ByteReader in(body);
  RememberedBatch batch;
  batch.process_set = in.i32();
  const std::uint32_t count = in.count(kMinRememberedBytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    HVD_TRY_ASSIGN(batch.items.emplace_back(), read_remembered(in));
  }
  if (!in.finished() || batch.items.empty()) {
    return malformed("length of what is to be remembered");
  }
  return batch;
}

}  // namespace hvd
