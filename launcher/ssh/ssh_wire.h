// These types read and write what SSH's messages and keys are made of: big-endian numbers, and texts with their length
// before them (RFC 4251 section 5). Value types. Nothing here fails except through ok().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::launch {

// WireReader remembers a failure: whatever is not there reads as 0 or nothing, and ok() becomes false.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  std::size_t number() {
    std::size_t value = 0;
    for (const char c : take(4)) {
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  std::uint8_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(one.front());
  }
  std::string_view text() { return take(number()); }
  [[nodiscard]] bool ok() const { return !failed_; }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
  bool failed_ = false;
};

inline std::string wire_number(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> static_cast<unsigned>(shift) & 0xffU);
  }
  return bytes;
}

inline std::string wire_text(std::string_view text) {
  return wire_number(static_cast<std::uint32_t>(text.size())).append(text);
}

}  // namespace hvd::launch
