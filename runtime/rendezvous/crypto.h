// Wraps the two parts of libcrypto that connections need. X25519 (RFC 7748) lets two ends agree on a key that no
// eavesdropper learns. AES-256-GCM encrypts and authenticates. They make a static agent 3.5 MB larger, but no smaller
// part of libcrypto has a key exchange or uses the processor's AES instructions.
//
// They use a library context of our own. So neither openssl.cnf nor other uses of libcrypto in this process change
// their behaviour, and a static agent never loads a provider's library. Value types; Aead can only be moved.
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

using KeyShare = std::array<std::uint8_t, kShareBytes>;   // the public key that an end sends
using SharedKey = std::array<std::uint8_t, kShareBytes>;  // the secret that both ends compute
using CipherKey = std::array<std::uint8_t, kCipherKeyBytes>;
using CipherNonce = std::array<std::uint8_t, kCipherNonceBytes>;

// A program that uses libcrypto for nothing else calls this before its first use. libcrypto then neither reads
// openssl.cnf nor registers the old names of all algorithms, which takes half the time of making a first key.
void init_lean_crypto();

// Fills `bytes` from the system's generator.
Result<void> fill_random(MutableBytes bytes);

// KeyPair is one end's half of an X25519 key agreement.
class KeyPair {
 public:
  static Result<KeyPair> make();
  // The pair of a given private key; for tests.
  static Result<KeyPair> of(const std::array<std::uint8_t, kShareBytes>& private_key);

  [[nodiscard]] const KeyShare& share() const { return share_; }
  // Refuses a share that would make the shared key known to everybody (a point of small order).
  [[nodiscard]] Result<SharedKey> agree(const KeyShare& other) const;

 private:
  KeyPair() = default;

  std::array<std::uint8_t, kShareBytes> private_{};
  KeyShare share_{};
};

// Aead is AES-256-GCM with one key. The caller ensures that no nonce is used twice.
class Aead {
 public:
  static Result<Aead> create(const CipherKey& key);
  Aead(Aead&&) noexcept;
  Aead& operator=(Aead&&) noexcept;
  ~Aead();

  // Encrypts the parts of `plain`, one after the other, to `out`, and writes the tag after them. `out` has room for
  // all, and may be the same memory as `plain` if that is a single part.
  Result<void> seal(const CipherNonce& nonce, Bytes header, std::span<const Bytes> plain, std::uint8_t* out);
  // Decrypts `sealed`, whose last kTagBytes are the tag, in place. kAuth: it was not sealed with this key, nonce and
  // header, and the bytes must not be used.
  Result<void> open(const CipherNonce& nonce, Bytes header, MutableBytes sealed);

 private:
  struct Contexts;
  explicit Aead(std::unique_ptr<Contexts> contexts);

  std::unique_ptr<Contexts> contexts_;
};

}  // namespace hvd
