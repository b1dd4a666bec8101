#include "runtime/rendezvous/handshake.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

namespace hvd::handshake_test {
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
  const std::string own_mac = claim.substr(kClaimBytes - kMacBytes, kMacBytes);
  CHECK_FALSE(connector.feed(as_bytes(own_mac)).ok());
}

TEST_CASE("a claim is good for its role and its two ranks only") {
  CHECK_FALSE(is_accepted(HandshakeAcceptor(secret_of(7), 3, nonce_of(1)), record().claim));
  // Role, the lengths of texts, from and to are bytes 8 to 19.
  for (std::size_t i = 8; i < 20; ++i) {
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
  t.greeting[4] = 1;
  HandshakeConnector connector(secret_of(7), kClaim, nonce_of(2));
  // Before the rest has come, which may be shorter in that version.
  const auto answer = connector.feed(as_bytes(t.greeting.substr(0, 8)));
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().message().find("version 1") != std::string::npos);
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

namespace {

const LinkClaim kCall{LinkRole::kAgent, 5, kLauncher, "node1", "10.0.0.1:4711"};

KeyPair pair_of(std::uint8_t byte) {
  KeyShare bytes;
  bytes.fill(byte);
  return KeyPair::of(bytes).value();
}

// Two ends of an encrypted connection that trust each other.
struct SealedPair {
  HandshakeAcceptor acceptor;
  HandshakeConnector connector;
  std::string claim;

  explicit SealedPair(std::uint8_t acceptor_key = 3, std::uint8_t connector_key = 4, const LinkClaim& call = kCall)
      : acceptor(secret_of(7), kLauncher, nonce_of(1), pair_of(acceptor_key)),
        connector(secret_of(7), call, nonce_of(2), pair_of(connector_key)) {
    claim = connector.feed(as_bytes(acceptor.greeting())).value();
    std::string_view rest = claim;
    std::optional<LinkClaim> heard;
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, acceptor.wanted());
      rest.remove_prefix(piece.size());
      heard = acceptor.feed(as_bytes(piece)).value();
    }
    REQUIRE(heard);
    CHECK(*heard == call);
    REQUIRE(connector.feed(as_bytes(acceptor.proof())).ok());
    REQUIRE(connector.is_done());
  }
};

}  // namespace

TEST_CASE("an encrypted connection has the same two keys at both ends, one for each direction") {
  const SealedPair pair;
  CHECK(pair.acceptor.keys().sending == pair.connector.keys().receiving);
  CHECK(pair.acceptor.keys().receiving == pair.connector.keys().sending);
  CHECK_FALSE(pair.acceptor.keys().sending == pair.acceptor.keys().receiving);
}

TEST_CASE("keys are of the two shares and of all that was said, and so of one connection only") {
  const RecordKey key = SealedPair().connector.keys().sending;
  CHECK(SealedPair().connector.keys().sending == key);
  CHECK_FALSE(SealedPair(9, 4).connector.keys().sending == key);
  CHECK_FALSE(SealedPair(3, 9).connector.keys().sending == key);
  for (const LinkClaim& other : {LinkClaim{LinkRole::kAgent, 6, kLauncher, "node1", "10.0.0.1:4711"},
                                 LinkClaim{LinkRole::kAgent, 5, kLauncher, "node2", "10.0.0.1:4711"},
                                 LinkClaim{LinkRole::kAgent, 5, kLauncher, "node1", "10.0.0.2:4711"},
                                 LinkClaim{LinkRole::kAgent, 5, kLauncher, "node11", "0.0.0.1:4711"}}) {
    CHECK_FALSE(SealedPair(3, 4, other).connector.keys().sending == key);
  }
}

TEST_CASE("every changed bit of a claim with texts is refused, and its texts may be as long as their count says") {
  const SealedPair pair;
  for (std::size_t bit = 0; bit < pair.claim.size() * 8; ++bit) {
    std::string claim = pair.claim;
    claim[bit / 8] = static_cast<char>(claim[bit / 8] ^ (1 << (bit % 8)));
    HandshakeAcceptor acceptor(secret_of(7), kLauncher, nonce_of(1), pair_of(3));
    CHECK_FALSE(is_accepted(acceptor, claim.substr(0, kClaimBytes)));
    HandshakeAcceptor patient(secret_of(7), kLauncher, nonce_of(1), pair_of(3));
    std::string_view rest = claim;
    bool is_over = false;
    while (!is_over && !rest.empty() && patient.wanted() > 0) {
      const std::string_view piece = rest.substr(0, patient.wanted());
      rest.remove_prefix(piece.size());
      const auto heard = patient.feed(as_bytes(piece));
      is_over = !heard.ok();
      CHECK_FALSE((heard.ok() && heard.value()));
    }
  }
  const std::string longest(kMaxClaimText, 'n');
  SealedPair(3, 4, LinkClaim{LinkRole::kAgent, 5, kLauncher, longest, longest});
}

TEST_CASE(
    "who knows the secret, but not the launcher's private key, is not taken for it by an agent that knows its share") {
  HandshakeAcceptor impostor(secret_of(7), kLauncher, nonce_of(1), pair_of(9));
  HandshakeConnector agent(secret_of(7), kCall, nonce_of(2), pair_of(4), pair_of(3).share());
  CHECK(agent.feed(as_bytes(impostor.greeting())).error().code() == Code::kAuth);
  // With the launcher's share in its greeting it may prove the secret, but has no key of what the agent then says.
  HandshakeAcceptor launcher(secret_of(7), kLauncher, nonce_of(1), pair_of(3));
  HandshakeConnector again(secret_of(7), kCall, nonce_of(2), pair_of(4), pair_of(3).share());
  REQUIRE(again.feed(as_bytes(launcher.greeting())).ok());
  CHECK_FALSE(SealedPair(9, 4).acceptor.keys().receiving == again.keys().sending);
}

TEST_CASE("a connection that one end wants encrypted and the other not is refused by both, at its first bytes") {
  HandshakeAcceptor plain(secret_of(7), kLauncher, nonce_of(1));
  HandshakeConnector sealed(secret_of(7), kCall, nonce_of(2), pair_of(4));
  const auto answer = sealed.feed(as_bytes(plain.greeting()));
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().message() == "the connection is to be encrypted here, and at the other end it is not");
  // A listener who turns the greeting's word gains nothing: the other end then refuses, or misses the proof.
  HandshakeAcceptor acceptor(secret_of(7), kLauncher, nonce_of(1), pair_of(3));
  std::string turned = acceptor.greeting();
  turned[6] = 0;
  HandshakeConnector open(secret_of(7), kCall, nonce_of(2));
  const std::string claim = open.feed(as_bytes(turned)).value();
  CHECK(acceptor.feed(as_bytes(claim.substr(0, kClaimBytes))).error().message() ==
        "the connection is to be encrypted here, and at the other end it is not");
}

TEST_CASE("a share that would make the keys known to all is refused at either end") {
  HandshakeConnector connector(secret_of(7), kCall, nonce_of(2), pair_of(4));
  std::string greeting = HandshakeAcceptor(secret_of(7), kLauncher, nonce_of(1), pair_of(3)).greeting();
  std::fill(greeting.end() - kShareBytes, greeting.end(), '\0');
  CHECK(connector.feed(as_bytes(greeting)).error().code() == Code::kAuth);
}

TEST_CASE("a claim's texts that could change a terminal are refused, also of one who knows the secret") {
  for (const char* name : {"node\x1b[2J", "node\n", "n\xc2\x9b", "\x7f"}) {
    for (const LinkClaim& claim : {LinkClaim{LinkRole::kAgent, 5, kLauncher, name, "10.0.0.1:5"},
                                   LinkClaim{LinkRole::kAgent, 5, kLauncher, "node1", name}}) {
      HandshakeAcceptor acceptor(secret_of(7), kLauncher, nonce_of(1), pair_of(3));
      HandshakeConnector connector(secret_of(7), claim, nonce_of(2), pair_of(4));
      const std::string said = connector.feed(as_bytes(acceptor.greeting())).value();
      REQUIRE(acceptor.feed(as_bytes(std::string_view(said).substr(0, kClaimBytes))).ok());
      const auto heard = acceptor.feed(as_bytes(std::string_view(said).substr(kClaimBytes)));
      CHECK(heard.error().code() == Code::kProtocol);
    }
  }
}

}  // namespace hvd::handshake_test
