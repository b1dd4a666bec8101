#include "runtime/rendezvous/hmac.h"

#include <doctest/doctest.h>

namespace hvd::hmac_test {
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

TEST_CASE("HKDF gives what RFC 5869 has, also without salt and info, and over several blocks") {
  const auto run = [](const std::string& salt, const std::string& secret, const std::string& info, std::size_t size) {
    return hex(hkdf_expand(as_bytes(hkdf_extract(as_bytes(salt), as_bytes(secret))), info, size));
  };
  const auto count = [](int first, int last) {
    std::string bytes;
    for (int byte = first; byte <= last; ++byte) {
      bytes += static_cast<char>(byte);
    }
    return bytes;
  };
  CHECK(run(count(0x00, 0x0c), std::string(22, '\x0b'), count(0xf0, 0xf9), 42) ==
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  CHECK(
      run(count(0x60, 0xaf), count(0x00, 0x4f), count(0xb0, 0xff), 82) ==
      "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8"
      "367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
  CHECK(run("", std::string(22, '\x0b'), "", 42) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
  CHECK(hkdf_expand(as_bytes("key"), "info", 255 * kMacBytes).size() == 255 * kMacBytes);
}

}  // namespace hvd::hmac_test
