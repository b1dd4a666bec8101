#include "runtime/rendezvous/handshake.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

using namespace hvd;

namespace {

JobSecret secret_of(std::uint8_t byte) {
  JobSecret secret;
  secret.fill(byte);
  return secret;
}
Nonce nonce_of(std::uint8_t byte) {
  Nonce nonce;
  nonce.fill(byte);
  return nonce;
}

const LinkClaim kClaim{LinkRole::kData, 5, 2};

// The bytes of a whole handshake between ends that agree.
struct Transcript {
  std::string greeting;
  std::string claim;
  std::string proof;
};
Transcript record(std::uint8_t acceptor_nonce = 1, const LinkClaim& claim = kClaim) {
  HandshakeAcceptor acceptor(secret_of(7), claim.to, nonce_of(acceptor_nonce));
  HandshakeConnector connector(secret_of(7), claim, nonce_of(2));
  Transcript t;
  t.greeting = acceptor.greeting();
  t.claim = connector.feed(as_bytes(t.greeting)).value();
  REQUIRE(acceptor.feed(as_bytes(t.claim)).value());
  t.proof = acceptor.proof();
  return t;
}

bool is_accepted(HandshakeAcceptor acceptor, std::string_view claim) {
  const auto result = acceptor.feed(as_bytes(claim));
  return result.ok() && result.value().has_value();
}

}  // namespace

TEST_CASE("two ranks of one job convince each other, in any chunking") {
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    HandshakeAcceptor acceptor(secret_of(7), 2, nonce_of(1));
    HandshakeConnector connector(secret_of(7), kClaim, nonce_of(2));
    std::string to_connector = acceptor.greeting();
    std::optional<LinkClaim> claim;
    while (!connector.is_done()) {
      std::string to_acceptor;
      while (!to_connector.empty()) {
        const std::size_t size = std::min({chunk, to_connector.size(), connector.wanted()});
        to_acceptor += connector.feed(as_bytes(std::string_view(to_connector).substr(0, size))).value();
        to_connector.erase(0, size);
      }
      while (!to_acceptor.empty()) {
        const std::size_t size = std::min({chunk, to_acceptor.size(), acceptor.wanted()});
        claim = acceptor.feed(as_bytes(std::string_view(to_acceptor).substr(0, size))).value();
        to_acceptor.erase(0, size);
      }
      to_connector = acceptor.proof();
    }
    REQUIRE(claim);
    CHECK(*claim == kClaim);
    CHECK(acceptor.wanted() == 0);
    CHECK(connector.wanted() == 0);
  }
}

TEST_CASE("messages have the sizes that the header tells") {
  const Transcript t = record();
  CHECK(t.greeting.size() == kGreetingBytes);
  CHECK(t.claim.size() == kClaimBytes);
  CHECK(t.proof.size() == kProofBytes);
}

TEST_CASE("another secret is refused at either end") {
  const Transcript t = record();
  HandshakeAcceptor acceptor(secret_of(8), 2, nonce_of(1));
  CHECK(acceptor.feed(as_bytes(t.claim)).error().code() == Code::kAuth);
  HandshakeConnector connector(secret_of(8), kClaim, nonce_of(2));
  REQUIRE(connector.feed(as_bytes(t.greeting)).ok());
  CHECK(connector.feed(as_bytes(t.proof)).error().code() == Code::kAuth);
  CHECK_FALSE(connector.is_done());
}

TEST_CASE("an old conversation cannot be replayed at either end") {
  const Transcript old = record(1);
  CHECK_FALSE(is_accepted(HandshakeAcceptor(secret_of(7), 2, nonce_of(9)), old.claim));
  HandshakeConnector connector(secret_of(7), kClaim, nonce_of(9));
  REQUIRE(connector.feed(as_bytes(old.greeting)).ok());
  CHECK_FALSE(connector.feed(as_bytes(old.proof)).ok());
}

TEST_CASE("a mac cannot be reflected to the one who made it") {
  const Transcript t = record();
  HandshakeConnector connector(secret_of(7), kClaim, nonce_of(2));
  const std::string claim = connector.feed(as_bytes(t.greeting)).value();
  const std::string own_mac = claim.substr(claim.size() - kMacBytes);
  CHECK_FALSE(connector.feed(as_bytes(own_mac)).ok());
}

TEST_CASE("a claim is good for its role and its two ranks only") {
  CHECK_FALSE(is_accepted(HandshakeAcceptor(secret_of(7), 3, nonce_of(1)), record().claim));
  // Role, from and to are bytes 6 to 15.
  for (std::size_t i = 6; i < 16; ++i) {
    std::string claim = record().claim;
    claim[i] = static_cast<char>(claim[i] ^ 1);
    CHECK_FALSE(is_accepted(HandshakeAcceptor(secret_of(7), 2, nonce_of(1)), claim));
  }
}

TEST_CASE("an unknown role is refused also with a valid mac") {
  HandshakeAcceptor acceptor(secret_of(7), 2, nonce_of(1));
  HandshakeConnector connector(secret_of(7), LinkClaim{static_cast<LinkRole>(9), 5, 2}, nonce_of(2));
  const std::string claim = connector.feed(as_bytes(acceptor.greeting())).value();
  CHECK(acceptor.feed(as_bytes(claim)).error().code() == Code::kProtocol);
}

TEST_CASE("an agent is let in by a launcher only, and a launcher lets in nobody else") {
  const LinkClaim call{LinkRole::kAgent, 5, kLauncher};
  CHECK(is_accepted(HandshakeAcceptor(secret_of(7), kLauncher, nonce_of(1)), record(1, call).claim));
  for (const LinkClaim& wrong : {LinkClaim{LinkRole::kData, 5, kLauncher}, LinkClaim{LinkRole::kAgent, 5, 2}}) {
    HandshakeAcceptor acceptor(secret_of(7), wrong.to, nonce_of(1));
    HandshakeConnector connector(secret_of(7), wrong, nonce_of(2));
    const std::string claim = connector.feed(as_bytes(acceptor.greeting())).value();
    CHECK(acceptor.feed(as_bytes(claim)).error().code() == Code::kProtocol);
  }
}

TEST_CASE("every single changed bit of every message is refused") {
  const Transcript t = record();
  for (std::size_t bit = 0; bit < kClaimBytes * 8; ++bit) {
    std::string claim = t.claim;
    claim[bit / 8] = static_cast<char>(claim[bit / 8] ^ (1 << (bit % 8)));
    CHECK_FALSE(is_accepted(HandshakeAcceptor(secret_of(7), 2, nonce_of(1)), claim));
  }
  for (std::size_t bit = 0; bit < kProofBytes * 8; ++bit) {
    HandshakeConnector connector(secret_of(7), kClaim, nonce_of(2));
    REQUIRE(connector.feed(as_bytes(t.greeting)).ok());
    std::string proof = t.proof;
    proof[bit / 8] = static_cast<char>(proof[bit / 8] ^ (1 << (bit % 8)));
    CHECK_FALSE(connector.feed(as_bytes(proof)).ok());
  }
}

TEST_CASE("another version is told as such") {
  Transcript t = record();
  t.greeting[4] = 2;
  HandshakeConnector connector(secret_of(7), kClaim, nonce_of(2));
  const auto answer = connector.feed(as_bytes(t.greeting));
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().message().find("version 2") != std::string::npos);
}

TEST_CASE("random bytes are refused, and so is more than was asked for") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string garbage(kClaimBytes, '\0');
    for (char& c : garbage) {
      c = static_cast<char>(random());
    }
    CHECK_FALSE(is_accepted(HandshakeAcceptor(secret_of(7), 2, nonce_of(1)), garbage));
    HandshakeConnector connector(secret_of(7), kClaim, nonce_of(2));
    CHECK_FALSE(connector.feed(as_bytes(garbage).first(kGreetingBytes)).ok());
  }
  HandshakeAcceptor acceptor(secret_of(7), 2, nonce_of(1));
  CHECK_FALSE(acceptor.feed(as_bytes(std::string(kClaimBytes + 1, 'x'))).ok());
}

TEST_CASE("nonces differ") {
  const auto a = make_nonce();
  const auto b = make_nonce();
  REQUIRE((a.ok() && b.ok()));
  CHECK(a.value() != b.value());
}
