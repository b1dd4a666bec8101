#include "runtime/rendezvous/hmac.h"

#include <doctest/doctest.h>

using namespace hvd;

namespace {

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

std::string mac(const std::string& key, const std::string& message) {
  return hex(hmac_sha256(as_bytes(key), as_bytes(message)));
}

}  // namespace

TEST_CASE("macs are those of RFC 4231, with keys shorter, as long as, and longer than a block") {
  CHECK(mac(std::string(20, '\x0b'), "Hi There") == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(mac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(mac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("a mac is the same only whole and bit for bit") {
  const std::string good = hmac_sha256(as_bytes("k"), as_bytes("m"));
  std::string other = good;
  other.back() = static_cast<char>(other.back() ^ 1);
  CHECK(is_same_mac(good, as_bytes(good)));
  CHECK_FALSE(is_same_mac(good, as_bytes(other)));
  CHECK_FALSE(is_same_mac(good, as_bytes(good.substr(1))));
  CHECK_FALSE(is_same_mac("", {}));
}
