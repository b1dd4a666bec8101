// Handshake: both ends of a new connection, between two ranks or from an agent to its launcher, prove that they know a
// secret, and agree on what the connection is for, before any other byte. Three messages, little-endian:
//
//   acceptor -> connector   Greeting  u32 magic | u16 version | u16 0 | 32 bytes nonce_a
//   connector -> acceptor   Claim     u32 magic | u16 version | u16 role | i32 from | i32 to | 32 bytes nonce_c | 32
//   bytes mac acceptor -> connector   Proof     32 bytes mac
//
//   mac = HMAC-SHA-256(secret, label | u16 version | u16 role | i32 from | i32 to | nonce_a | nonce_c)
//   label = "hvd link claim" or "hvd link proof", each padded with zeros to 16 bytes
//
// The pattern is the three-pass mutual authentication of ISO/IEC 9798-4 with HMAC (RFC 2104) as the check function.
// Each mac covers both nonces, so that an old conversation cannot be replayed; the labels differ, so that a mac cannot
// be reflected to the one who made it; role and both ranks are covered, so that it is of no use for another connection.
// It proves who is there; what follows on the connection is neither encrypted nor signed.
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
#include "runtime/rendezvous/hmac.h"
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
  int from = 0;  // the rank that connects
  int to = 0;    // the rank that accepts, or kLauncher
};
bool operator==(const LinkClaim& a, const LinkClaim& b);

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kGreetingBytes = 8 + kNonceBytes;
inline constexpr std::size_t kClaimBytes = 16 + kNonceBytes + kMacBytes;
inline constexpr std::size_t kProofBytes = kMacBytes;

using Nonce = std::array<std::uint8_t, kNonceBytes>;
// From the system's generator.
Result<Nonce> make_nonce();

// One message read at a time, and never a byte more: what follows the handshake belongs to the connection's user.
class HandshakeAcceptor {
 public:
  HandshakeAcceptor(const JobSecret& secret, int rank, const Nonce& nonce);

  // To send at once.
  [[nodiscard]] std::string greeting() const;
  // Bytes of the Claim that are still missing; read no more than these.
  [[nodiscard]] std::size_t wanted() const { return kClaimBytes - claim_.size(); }
  // The connector's claim once it is whole and proven, nullopt before. Send proof() then.
  Result<std::optional<LinkClaim>> feed(Bytes bytes);
  [[nodiscard]] const std::string& proof() const { return proof_; }

 private:
  JobSecret secret_;
  int rank_;
  Nonce nonce_;
  std::string claim_;
  std::string proof_;
};

class HandshakeConnector {
 public:
  HandshakeConnector(const JobSecret& secret, const LinkClaim& claim, const Nonce& nonce);

  [[nodiscard]] std::size_t wanted() const;
  // Any bytes to send now; done() after the one that was the acceptor's valid proof.
  Result<std::string> feed(Bytes bytes);
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  Result<std::string> answer_greeting();

  JobSecret secret_;
  LinkClaim claim_;
  Nonce nonce_;
  std::string buffer_;
  std::string expected_proof_;  // empty until the greeting has come
  bool is_done_ = false;
};

// The connector's whole part over a connected socket; blocks until it is done or the deadline has passed.
Result<void> prove(int fd, HandshakeConnector& handshake, Deadline deadline);

}  // namespace hvd
