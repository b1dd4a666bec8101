// The handshake opens every new connection, between two ranks or from an agent to its launcher. Both ends prove that
// they know a secret, and agree on the purpose of the connection, before any other byte. It has three messages,
// little-endian:
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
// The pattern is the three-pass mutual authentication of ISO/IEC 9798-4, with HMAC (RFC 2104) as the check function.
// Each mac covers both nonces, so an old conversation cannot be replayed. The labels differ, so a mac cannot be sent
// back to the end that made it. Each mac also covers the role, both ranks, the connector's node and the address that it
// dialled, so it is of no use for another connection.
//
// With protection 1, the data after the handshake is encrypted (record.h). Each end sends the public share of a key
// pair that it has made for this connection (X25519). The keys of both directions are
//
//   HKDF-SHA-256(salt = nonce_a | nonce_c, secret | what X25519 gives, "hvd record keys" | transcript)
//
// So an eavesdropper can read nothing, even one that knows the secret or learns it later. A connector may know the
// acceptor's share beforehand (`expected`); then nobody can pose as the acceptor with the secret alone. With protection
// 0 the shares are zeros, and the data after the handshake is neither encrypted nor signed.
//
// Both classes are the protocol's state without a socket: bytes in, bytes out, and total over any input. After an error
// the connection has to be closed. Value types.
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

// LinkRole is the purpose of a connection.
enum class LinkRole : std::uint16_t {
  kControl = 1,  // between rank 0 and any other rank
  kData = 2,     // between the leaders of two nodes
  kSegment = 3,  // a node's leader hands the shared memory to another rank of the node
  kAgent = 4,    // an agent calls its launcher back; the only role that kLauncher accepts
  kFiles = 5,    // an agent gets files from another one; the only role that kFileServer accepts
  kRounds = 6,   // between the leaders of two nodes, for small operations
};
// These stand for the launcher, and for an agent that gives files, where a rank is expected.
inline constexpr int kLauncher = -1;
inline constexpr int kFileServer = -2;

const char* name_of(LinkRole role);

struct LinkClaim {
  LinkRole role = LinkRole::kControl;
  int from = 0;              // the rank that connects
  int to = 0;                // the rank that accepts, or kLauncher, or kFileServer
  std::string node = {};     // the connector's, at most 255 bytes of ASCII; empty where it does not matter
  std::string address = {};  // the one that the connector has dialled; likewise
};
bool operator==(const LinkClaim& a, const LinkClaim& b);

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kGreetingBytes = 8 + kNonceBytes + kShareBytes;
inline constexpr std::size_t kClaimBytes =
    20 + kNonceBytes + kShareBytes + kMacBytes;  // without the node and address texts
inline constexpr std::size_t kMaxClaimText = 255;
inline constexpr std::size_t kProofBytes = kMacBytes;

using Nonce = std::array<std::uint8_t, kNonceBytes>;
// Takes the bytes from the system's random generator.
Result<Nonce> make_nonce();

// The acceptor's side. It reads one message at a time, and never a byte more: what follows the handshake belongs to the
// connection's user.
class HandshakeAcceptor {
 public:
  // With a `key`, the data after the handshake is to be encrypted.
  HandshakeAcceptor(const JobSecret& secret, int rank, const Nonce& nonce, std::optional<KeyPair> key = {});

  // The first message, to be sent at once.
  [[nodiscard]] std::string greeting() const;
  // The number of bytes of the Claim that are still missing, as far as is known. The caller must not read more.
  [[nodiscard]] std::size_t wanted() const;
  // Returns the connector's claim once it is whole and proven, nullopt before. The caller then sends proof().
  Result<std::optional<LinkClaim>> feed(Bytes bytes);
  [[nodiscard]] const std::string& proof() const { return proof_; }
  // The keys for the data after the handshake; valid once there is a proof, if the acceptor has a key.
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
  // `key` is as with the acceptor. `expected` is the only share that the acceptor may send.
  HandshakeConnector(const JobSecret& secret, LinkClaim claim, const Nonce& nonce, std::optional<KeyPair> key = {},
                     std::optional<KeyShare> expected = {});

  [[nodiscard]] std::size_t wanted() const;
  // Returns the bytes to send now, if any. is_done() is true once the acceptor's valid proof was fed.
  Result<std::string> feed(Bytes bytes);
  [[nodiscard]] bool is_done() const { return is_done_; }
  // The keys for the data after the handshake, likewise; valid once is_done().
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

// Does the connector's whole part over a connected socket. Blocks until it is done or the deadline has passed.
Result<void> prove(int fd, HandshakeConnector& handshake, Deadline deadline);

}  // namespace hvd
