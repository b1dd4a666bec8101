#include "runtime/rendezvous/hmac.h"

#include <algorithm>
#include <array>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "runtime/base/check.h"

namespace hvd {
namespace {

static_assert(SHA256_DIGEST_LENGTH == kMacBytes);
using Digest = std::array<std::uint8_t, SHA256_DIGEST_LENGTH>;
using Block = std::array<std::uint8_t, SHA256_CBLOCK>;

Digest sha256(Bytes first, Bytes second) {
  SHA256_CTX state;
  Digest digest;
  ::SHA256_Init(&state);
  ::SHA256_Update(&state, first.data(), first.size());
  ::SHA256_Update(&state, second.data(), second.size());
  ::SHA256_Final(digest.data(), &state);
  OPENSSL_cleanse(&state, sizeof state);
  return digest;
}

Block padded(const Block& key, std::uint8_t pad) {
  Block block = key;
  for (std::uint8_t& byte : block) {
    byte = static_cast<std::uint8_t>(byte ^ pad);
  }
  return block;
}

}  // namespace

std::string hmac_sha256(Bytes key, Bytes message) {
  Block block{};
  const Digest short_key = key.size() > block.size() ? sha256(key, {}) : Digest{};
  const Bytes used = key.size() > block.size() ? Bytes(short_key) : key;
  std::copy(used.begin(), used.end(), block.begin());
  const Digest inner = sha256(padded(block, 0x36), message);
  return std::string(as_text(sha256(padded(block, 0x5C), inner)));
}

bool is_same_mac(std::string_view expected, Bytes received) {
  return expected.size() == kMacBytes && received.size() == kMacBytes &&
         CRYPTO_memcmp(expected.data(), received.data(), kMacBytes) == 0;
}

std::string hkdf_extract(Bytes salt, Bytes secret) {
  return hmac_sha256(salt, secret);
}

std::string hkdf_expand(Bytes key, std::string_view info, std::size_t size) {
  HVD_CHECK(size <= 255 * kMacBytes);
  std::string all;
  std::string block;
  for (unsigned number = 1; all.size() < size; ++number) {
    block = hmac_sha256(key, as_bytes(block + std::string(info) + static_cast<char>(number)));
    all += block;
  }
  all.resize(size);
  return all;
}

}  // namespace hvd
