// HMAC-SHA-256 (RFC 2104), by which two ends prove that they know a secret, and HKDF (RFC 5869), which derives keys
// from it. Both use libcrypto's SHA-256. Pure.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/bytes.h"

namespace hvd {

inline constexpr std::size_t kMacBytes = 32;

// Takes a key of any length; one of more than 64 bytes is replaced by its hash.
std::string hmac_sha256(Bytes key, Bytes message);

// Compares in constant time, so that the duration does not reveal where the two differ.
bool is_same_mac(std::string_view expected, Bytes received);

// The two steps of HKDF. The first makes a key from a secret that is not uniform. The second makes as many bytes as are
// wanted (at most 8160) for a use that `info` names.
std::string hkdf_extract(Bytes salt, Bytes secret);
std::string hkdf_expand(Bytes key, std::string_view info, std::size_t size);

}  // namespace hvd
