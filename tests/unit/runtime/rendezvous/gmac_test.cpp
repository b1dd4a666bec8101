#include "runtime/rendezvous/gmac.h"

#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "runtime/rendezvous/crypto.h"

namespace hvd::gmac_test {

TEST_CASE("a proof is that of GCM without a text, however the bytes come, and others have another one") {
  GmacKey key{1, 2, 3};
  const std::string text(1000, 'x');
  auto mac = Gmac::create(key).value();
  const auto proof = [&mac](std::uint64_t nonce, const std::string& bytes, std::size_t piece) {
    mac.begin(nonce);
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      mac.add(as_bytes(bytes.substr(at, piece)));
    }
    return mac.finish();
  };
  const GmacProof whole = proof(7, text, text.size());
  for (const std::size_t piece : {1U, 16U, 333U}) {
    CHECK(proof(7, text, piece) == whole);
  }
  CipherNonce nonce{7};
  GmacProof expected{};
  REQUIRE(Aead::create(key).value().seal(nonce, as_bytes(text), {}, expected.data()).ok());
  CHECK(whole == expected);
  std::string other = text;
  other[500] = 'y';
  CHECK(proof(7, other, 100) != whole);
  CHECK(proof(7, text.substr(1), 100) != whole);
  CHECK(proof(8, text, 100) != whole);
  mac.begin(7);
  mac.add(as_bytes(other));  // dropped
  CHECK(proof(7, text, 100) == whole);
  CHECK(proof(7, "", 1) != GmacProof{});
  key[0] = 2;
  mac = Gmac::create(key).value();
  CHECK(proof(7, text, 100) != whole);
}

}  // namespace hvd::gmac_test
