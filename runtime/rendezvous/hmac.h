// HMAC-SHA-256 (RFC 2104) over libcrypto's SHA-256, by which two ends prove that they know a secret, and HKDF (RFC
// 5869) on top of it, which makes keys of what they know. Pure.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/bytes.h"

namespace hvd {

inline constexpr std::size_t kMacBytes = 32;

// Any key; of one that is longer than 64 bytes the hash is the key.
std::string hmac_sha256(Bytes key, Bytes message);

// In constant time, so that how long it takes tells nothing of where they differ.
bool is_same_mac(std::string_view expected, Bytes received);

// HKDF's two steps: a key from what is secret but not uniform, then as many bytes as are wanted (at most 8160) for a
// use that `info` names.
std::string hkdf_extract(Bytes salt, Bytes secret);
std::string hkdf_expand(Bytes key, std::string_view info, std::size_t size);

}  // namespace hvd
