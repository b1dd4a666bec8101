// What is used of libcrypto's EVP: X25519 (RFC 7748), by which two ends agree on a key that no listener learns, and
// AES-256-GCM, which encrypts and authenticates. A static agent becomes 3.5 MB larger by it; nothing less of libcrypto
// has a key exchange or the processor's own AES.
//
// A library context of our own: neither openssl.cnf nor what else this process does with libcrypto has a say, and a
// static agent never loads a provider's library. Value types; Aead can only be moved.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd {

inline constexpr std::size_t kShareBytes = 32;
inline constexpr std::size_t kCipherKeyBytes = 32;
inline constexpr std::size_t kCipherNonceBytes = 12;
inline constexpr std::size_t kTagBytes = 16;

using KeyShare = std::array<std::uint8_t, kShareBytes>;   // what an end shows to the other
using SharedKey = std::array<std::uint8_t, kShareBytes>;  // what both then know, and nobody else
using CipherKey = std::array<std::uint8_t, kCipherKeyBytes>;
using CipherNonce = std::array<std::uint8_t, kCipherNonceBytes>;

// Fills `bytes` from the system's generator.
Result<void> fill_random(MutableBytes bytes);

// One end's half of an X25519 agreement.
class KeyPair {
 public:
  static Result<KeyPair> make();
  // Of a private key that is known: for tests.
  static Result<KeyPair> of(const std::array<std::uint8_t, kShareBytes>& private_key);

  [[nodiscard]] const KeyShare& share() const { return share_; }
  // Refuses a share that would make the outcome known to all (a point of small order).
  [[nodiscard]] Result<SharedKey> agree(const KeyShare& other) const;

 private:
  KeyPair() = default;

  std::array<std::uint8_t, kShareBytes> private_{};
  KeyShare share_{};
};

// AES-256-GCM under one key. The caller sees to it that no nonce is used twice.
class Aead {
 public:
  static Result<Aead> create(const CipherKey& key);
  Aead(Aead&&) noexcept;
  Aead& operator=(Aead&&) noexcept;
  ~Aead();

  // Writes the parts of `plain`, one after the other, and then the tag to `out`, which has room for all and may begin
  // where a single part does.
  Result<void> seal(const CipherNonce& nonce, Bytes header, std::span<const Bytes> plain, std::uint8_t* out);
  // Decrypts `sealed`, whose last kTagBytes are the tag, in place; kAuth when it is not what was sealed with this key,
  // nonce and header. The bytes are of no use then.
  Result<void> open(const CipherNonce& nonce, Bytes header, MutableBytes sealed);

 private:
  struct Contexts;
  explicit Aead(std::unique_ptr<Contexts> contexts);

  std::unique_ptr<Contexts> contexts_;
};

}  // namespace hvd
