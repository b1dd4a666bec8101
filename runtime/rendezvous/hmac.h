// HMAC-SHA-256 (RFC 2104) over libcrypto's SHA-256, by which two ends prove that they know a secret. Pure.
//
// Not libcrypto's own HMAC: it is reached through tables of all algorithms, which make a static agent 4 MB larger; the
// hash alone makes it 20 KB larger.
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

}  // namespace hvd
