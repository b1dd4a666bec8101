// Handshake: both ends of a new connection, between two ranks or from an agent to its launcher, prove that they know a
// secret, and agree on what the connection is for, before any other byte. Three messages, little-endian:
//
//   acceptor -> connector   Greeting  u32 magic | u16 version | u16 protection | 32 bytes nonce_a | 32 bytes share_a
//   connector -> acceptor   Claim     u32 magic | u16 version | u16 protection | u16 role | u8 n | u8 a | i32 from |
//                                     i32 to | 32 bytes nonce_c | 32 bytes share_c | 32 bytes mac | n bytes node |
//                                     a bytes address
//   acceptor -> connector   Proof     32 bytes mac
//
//   mac = HMAC-SHA-256(secret, label | transcript); label = "hvd link claim" or "hvd link proof", each padded with
//   zeros to 16 bytes; transcript = u16 version | u16 protection | u16 role | u8 n | u8 a | i32 from | i32 to | nonce_a
//   | nonce_c | share_a | share_c | node | address
//
// The pattern is the three-pass mutual authentication of ISO/IEC 9798-4 with HMAC (RFC 2104) as the check function.
// Each mac covers both nonces, so that an old conversation cannot be replayed; the labels differ, so that a mac cannot
// be reflected to the one who made it; role, both ranks, the caller's node and the address that it has dialled are
// covered, so that it is of no use for another connection.
//
// With protection 1 what follows is encrypted (record.h): each end shows the share of a key that it has made for this
// (X25519), and the keys of both directions are
//
//   HKDF-SHA-256(salt = nonce_a | nonce_c, secret | what X25519 gives, "hvd record keys" | transcript)
//
// so that whoever listens reads nothing, also if he knows the secret or learns it later. An acceptor's share that the
// connector knew beforehand (`expected`) makes it impossible to pose as the acceptor with the secret alone. With
// protection 0 the shares are zeros, and what follows is neither encrypted nor signed.
//
// Both classes are the state without the socket: bytes in, bytes out, total over any input. After an error the
// connection is to be closed. Value types.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/crypto.h"
#include "runtime/rendezvous/hmac.h"
#include "runtime/rendezvous/record.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

// What a connection is for.
enum class LinkRole : std::uint16_t {
  kControl = 1,  // rank 0 and any other rank
  kData = 2,     // the leaders of two nodes
  kSegment = 3,  // a node's leader hands the shared memory to another rank of the node
  kAgent = 4,    // a rank's agent calls the launcher back: to kLauncher, and nobody else has this role there
};
// What the launcher is called where a rank could stand.
inline constexpr int kLauncher = -1;

const char* name_of(LinkRole role);

struct LinkClaim {
  LinkRole role = LinkRole::kControl;
  int from = 0;              // the rank that connects
  int to = 0;                // the rank that accepts, or kLauncher
  std::string node = {};     // of the rank that connects, at most 255 bytes of ASCII; empty where it does not matter
  std::string address = {};  // that it has dialled, alike
};
bool operator==(const LinkClaim& a, const LinkClaim& b);

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kGreetingBytes = 8 + kNonceBytes + kShareBytes;
inline constexpr std::size_t kClaimBytes = 20 + kNonceBytes + kShareBytes + kMacBytes;  // without node and address
inline constexpr std::size_t kMaxClaimText = 255;
inline constexpr std::size_t kProofBytes = kMacBytes;

using Nonce = std::array<std::uint8_t, kNonceBytes>;
// From the system's generator.
Result<Nonce> make_nonce();

// One message read at a time, and never a byte more: what follows the handshake belongs to the connection's user.
class HandshakeAcceptor {
 public:
  // `key`: what follows is to be encrypted.
  HandshakeAcceptor(const JobSecret& secret, int rank, const Nonce& nonce, std::optional<KeyPair> key = {});

  // To send at once.
  [[nodiscard]] std::string greeting() const;
  // Bytes of the Claim that are still missing, as far as is known; read no more than these.
  [[nodiscard]] std::size_t wanted() const;
  // The connector's claim once it is whole and proven, nullopt before. Send proof() then.
  Result<std::optional<LinkClaim>> feed(Bytes bytes);
  [[nodiscard]] const std::string& proof() const { return proof_; }
  // For what follows, once there is a proof; of an acceptor with a key.
  [[nodiscard]] const RecordKeys& keys() const { return keys_; }

 private:
  Result<std::optional<LinkClaim>> check_claim();

  JobSecret secret_;
  int rank_;
  Nonce nonce_;
  std::optional<KeyPair> key_;
  std::string claim_;
  std::string proof_;
  RecordKeys keys_;
};

class HandshakeConnector {
 public:
  // `key`: as with the acceptor; `expected`: the only share that an acceptor may have.
  HandshakeConnector(const JobSecret& secret, LinkClaim claim, const Nonce& nonce, std::optional<KeyPair> key = {},
                     std::optional<KeyShare> expected = {});

  [[nodiscard]] std::size_t wanted() const;
  // Any bytes to send now; done() after the one that was the acceptor's valid proof.
  Result<std::string> feed(Bytes bytes);
  [[nodiscard]] bool is_done() const { return is_done_; }
  // As with the acceptor, once it is done.
  [[nodiscard]] const RecordKeys& keys() const { return keys_; }

 private:
  Result<std::string> answer_greeting();

  JobSecret secret_;
  LinkClaim claim_;
  Nonce nonce_;
  std::optional<KeyPair> key_;
  std::optional<KeyShare> expected_;
  std::string buffer_;
  std::string expected_proof_;  // empty until the greeting has come
  RecordKeys keys_;
  bool is_done_ = false;
};

// The connector's whole part over a connected socket; blocks until it is done or the deadline has passed.
Result<void> prove(int fd, HandshakeConnector& handshake, Deadline deadline);

}  // namespace hvd
