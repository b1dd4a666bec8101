#include "runtime/rendezvous/crypto.h"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

namespace hvd::crypto_test {
namespace {

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

template <typename Array>
Array array_of(std::string_view hex) {
  const std::string bytes = from_hex(hex);
  Array array{};
  REQUIRE(bytes.size() == array.size());
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

CipherKey key_of(std::uint8_t byte) {
  CipherKey key;
  key.fill(byte);
  return key;
}

}  // namespace

TEST_CASE("X25519 gives what RFC 7748 has, and two ends the same") {
  const KeyPair known =
      KeyPair::of(array_of<KeyShare>("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")).value();
  const auto shown = array_of<KeyShare>("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
  CHECK(known.agree(shown).value() ==
        array_of<SharedKey>("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"));
  const KeyPair a = KeyPair::make().value();
  const KeyPair b = KeyPair::make().value();
  CHECK(a.share() != b.share());
  CHECK(a.agree(b.share()).value() == b.agree(a.share()).value());
  CHECK(a.agree(b.share()).value() != known.agree(b.share()).value());
}

TEST_CASE("a share that would make the outcome known to all is refused") {
  const KeyPair pair = KeyPair::make().value();
  CHECK(pair.agree(KeyShare{}).error().code() == Code::kAuth);
  KeyShare one{};
  one[0] = 1;
  CHECK(pair.agree(one).error().code() == Code::kAuth);
}

TEST_CASE("AES-256-GCM gives what its specification has, test cases 13 and 14") {
  Aead aead = Aead::create(key_of(0)).value();
  std::array<std::uint8_t, 16 + kTagBytes> sealed{};
  REQUIRE(aead.seal({}, {}, {}, sealed.data()).ok());
  CHECK(as_text(Bytes(sealed).first(kTagBytes)) == from_hex("530f8afbc74536b9a963b4f1c4cb738b"));
  const std::array<std::uint8_t, 16> zeros{};
  const Bytes plain(zeros);
  REQUIRE(aead.seal({}, {}, std::span(&plain, 1), sealed.data()).ok());
  CHECK(as_text(sealed) == from_hex("cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"));
}

TEST_CASE("what was sealed is opened with the same key, nonce and header only, and each changed bit is noticed") {
  Aead aead = Aead::create(key_of(1)).value();
  const std::string text = "the ranks' words";
  std::string sealed(text.size() + kTagBytes, '\0');
  // In parts of any sizes.
  const std::array<Bytes, 3> parts = {as_bytes(text).first(3), as_bytes(text).subspan(3, 1), as_bytes(text).subspan(4)};
  REQUIRE(aead.seal({7}, as_bytes("head"), parts, reinterpret_cast<std::uint8_t*>(sealed.data())).ok());
  const auto opened = [](Aead& by, const CipherNonce& nonce, std::string_view header, std::string bytes) {
    const MutableBytes in_place(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size());
    const auto done = by.open(nonce, as_bytes(header), in_place);
    return done.ok() ? bytes.substr(0, bytes.size() - kTagBytes)
                     : std::string(done.error().code() == Code::kAuth ? "refused" : "failed");
  };
  CHECK(opened(aead, {7}, "head", sealed) == text);
  CHECK(opened(aead, {8}, "head", sealed) == "refused");
  CHECK(opened(aead, {7}, "heat", sealed) == "refused");
  CHECK(opened(aead, {7}, "head", sealed.substr(0, kTagBytes - 1)) == "refused");
  Aead other = Aead::create(key_of(2)).value();
  CHECK(opened(other, {7}, "head", sealed) == "refused");
  for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    REQUIRE(opened(aead, {7}, "head", changed) == "refused");
  }
}

}  // namespace hvd::crypto_test
