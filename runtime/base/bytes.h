// A bounded little-endian reader and writer; all our messages are encoded and decoded by it.
//
// The reader is total: any input is either decoded or refused. Its failure is sticky (as an iostream's), so that a
// decoder reads all its fields and checks ok() once. Value types.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace hvd {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; add swaps for this machine");

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

inline Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteWriter {
 public:
  ByteWriter& u8(std::uint8_t v) { return raw(&v, sizeof v); }
  ByteWriter& u16(std::uint16_t v) { return raw(&v, sizeof v); }
  ByteWriter& u32(std::uint32_t v) { return raw(&v, sizeof v); }
  ByteWriter& u64(std::uint64_t v) { return raw(&v, sizeof v); }
  ByteWriter& i32(std::int32_t v) { return raw(&v, sizeof v); }
  ByteWriter& i64(std::int64_t v) { return raw(&v, sizeof v); }
  ByteWriter& f64(double v) { return raw(&v, sizeof v); }
  // Writes a u32 length, then the bytes.
  ByteWriter& text(std::string_view v) { return u32(static_cast<std::uint32_t>(v.size())).raw(v.data(), v.size()); }
  ByteWriter& raw(const void* data, std::size_t size) {
    out_.append(static_cast<const char*>(data), size);
    return *this;
  }
  [[nodiscard]] const std::string& str() const& { return out_; }
  [[nodiscard]] std::string str() && { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : rest_(bytes) {}
  explicit ByteReader(std::string_view text) : rest_(as_bytes(text)) {}

  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint16_t u16() { return number<std::uint16_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  std::int32_t i32() { return number<std::int32_t>(); }
  std::int64_t i64() { return number<std::int64_t>(); }
  double f64() { return number<double>(); }
  std::string text() { return std::string(as_text(take(u32()))); }
  // Returns the next `size` bytes; if there are fewer, it returns none and fails.
  Bytes take(std::size_t size) {
    if (size > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    const Bytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  // Reads a count of items that follow, each of at least `min_item_bytes`. It refuses counts that the rest cannot hold,
  // so that a hostile length never becomes an allocation.
  std::uint32_t count(std::size_t min_item_bytes) {
    const std::uint32_t n = u32();
    if (min_item_bytes != 0 && n > rest_.size() / min_item_bytes) {
      failed_ = true;
      rest_ = {};
      return 0;
    }
    return n;
  }

  [[nodiscard]] bool ok() const { return !failed_; }
  // True if everything was read and nothing was missing.
  [[nodiscard]] bool finished() const { return !failed_ && rest_.empty(); }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  template <typename T>
  T number() {
    const Bytes taken = take(sizeof(T));
    T v{};
    if (taken.size() == sizeof(T)) {
      std::memcpy(&v, taken.data(), sizeof(T));
    }
    return v;
  }

  Bytes rest_;
  bool failed_ = false;
};

}  // namespace hvd
