// Gmac proves bytes that come in pieces (AES-256-GMAC, NIST SP 800-38D): by accident other bytes have the same proof
// once in 2^100 times, and only who knows the key could make such. It is no hash: who knows the key can. It is four
// times as fast as SHA-256 where the processor has instructions for both, and more where it has not.
//
// The caller ensures that no nonce is used for two texts with one key. Value type, move-only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd {

using GmacKey = std::array<std::uint8_t, 32>;
using GmacProof = std::array<std::uint8_t, 16>;

class Gmac {
 public:
  static Result<Gmac> create(const GmacKey& key);
  Gmac(Gmac&&) noexcept;
  Gmac& operator=(Gmac&&) noexcept;
  ~Gmac();

  // Begins anew; what was added before counts no more.
  void begin(std::uint64_t nonce);
  void add(Bytes bytes);
  // Returns the proof of all that was added since begin(). Zeros, which nothing has, where libcrypto has failed.
  GmacProof finish();

 private:
  struct State;  // hides libcrypto's type
  explicit Gmac(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace hvd
