// Sha256 makes the SHA-256 of bytes that come in pieces. Value type.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "runtime/base/bytes.h"

namespace hvd {

using Sha256Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(Bytes bytes);
  // Returns the digest of all that was added; the object begins anew.
  Sha256Digest finish();

 private:
  struct State;  // hides libcrypto's type
  std::unique_ptr<State> state_;
};

Sha256Digest sha256_of(Bytes bytes);

}  // namespace hvd
