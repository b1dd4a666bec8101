#include "runtime/rendezvous/handshake.h"

#include <errno.h>
#include <sys/random.h>

#include <algorithm>

#include "runtime/base/socket.h"

namespace hvd {
namespace {

constexpr std::uint32_t kMagic = 0x4C445648U;  // "HVDL"
constexpr std::uint16_t kVersion = 1;

enum class Side { kClaim, kProof };

std::string mac_of(const JobSecret& secret, Side side, const LinkClaim& claim, Bytes acceptor_nonce,
                   Bytes connector_nonce) {
  static constexpr std::size_t kLabelBytes = 16;
  std::string label = side == Side::kClaim ? "hvd link claim" : "hvd link proof";
  label.resize(kLabelBytes, '\0');
  ByteWriter text;
  text.raw(label.data(), label.size()).u16(kVersion).u16(static_cast<std::uint16_t>(claim.role));
  text.i32(claim.from).i32(claim.to);
  text.raw(acceptor_nonce.data(), acceptor_nonce.size()).raw(connector_nonce.data(), connector_nonce.size());
  return hmac_sha256(secret, as_bytes(text.str()));
}

// Magic and version, which start both first messages.
Result<void> check_preamble(ByteReader& reader) {
  if (reader.u32() != kMagic) {
    return Error(Code::kProtocol, "the other end is no part of hvdrun");
  }
  if (const std::uint16_t version = reader.u16(); version != kVersion) {
    return Error(Code::kProtocol, "the other end speaks version " + std::to_string(version) +
                                      " of the link, this one " + std::to_string(kVersion) +
                                      "; all must be of one version of hvdrun");
  }
  return {};
}

}  // namespace

const char* name_of(LinkRole role) {
  switch (role) {
    case LinkRole::kControl:
      return "control";
    case LinkRole::kData:
      return "data";
    case LinkRole::kSegment:
      return "shared memory";
    case LinkRole::kAgent:
      return "agent";
  }
  return "?";
}

bool operator==(const LinkClaim& a, const LinkClaim& b) {
  return a.role == b.role && a.from == b.from && a.to == b.to;
}

Result<Nonce> make_nonce() {
  Nonce nonce;
  for (;;) {
    // Requests of up to 256 bytes are never cut short once the generator is seeded (getrandom(2)).
    const ssize_t got = ::getrandom(nonce.data(), nonce.size(), 0);
    if (got == static_cast<ssize_t>(nonce.size())) {
      return nonce;
    }
    if (got >= 0 || errno != EINTR) {
      return Error::from_errno("getrandom");
    }
  }
}

HandshakeAcceptor::HandshakeAcceptor(const JobSecret& secret, int rank, const Nonce& nonce)
    : secret_(secret), rank_(rank), nonce_(nonce) {}

std::string HandshakeAcceptor::greeting() const {
  ByteWriter out;
  out.u32(kMagic).u16(kVersion).u16(0).raw(nonce_.data(), nonce_.size());
  return std::move(out).str();
}

Result<std::optional<LinkClaim>> HandshakeAcceptor::feed(Bytes bytes) {
  if (bytes.size() > wanted()) {
    return Error(Code::kProtocol, "more bytes than a claim has");
  }
  claim_ += as_text(bytes);
  if (wanted() != 0) {
    return std::optional<LinkClaim>();
  }
  ByteReader reader(claim_);
  HVD_TRY(check_preamble(reader));
  const std::uint16_t role = reader.u16();
  LinkClaim claim{static_cast<LinkRole>(role), reader.i32(), reader.i32()};
  const Bytes connector_nonce = reader.take(kNonceBytes);
  const Bytes mac = reader.take(kMacBytes);
  if (!is_same_mac(mac_of(secret_, Side::kClaim, claim, nonce_, connector_nonce), mac)) {
    return Error(Code::kAuth, "it does not know the secret of this job");
  }
  const bool is_for_rank =
      claim.role == LinkRole::kControl || claim.role == LinkRole::kData || claim.role == LinkRole::kSegment;
  const bool is_role = rank_ == kLauncher ? claim.role == LinkRole::kAgent : is_for_rank;
  if (!is_role || claim.to != rank_) {
    return Error(Code::kProtocol, "it asked for role " + std::to_string(role) + " of rank " + std::to_string(claim.to) +
                                      "; this is rank " + std::to_string(rank_));
  }
  proof_ = mac_of(secret_, Side::kProof, claim, nonce_, connector_nonce);
  return std::optional<LinkClaim>(claim);
}

HandshakeConnector::HandshakeConnector(const JobSecret& secret, const LinkClaim& claim, const Nonce& nonce)
    : secret_(secret), claim_(claim), nonce_(nonce) {}

std::size_t HandshakeConnector::wanted() const {
  if (is_done_) {
    return 0;
  }
  return (expected_proof_.empty() ? kGreetingBytes : kProofBytes) - buffer_.size();
}

Result<std::string> HandshakeConnector::feed(Bytes bytes) {
  if (bytes.size() > wanted()) {
    return Error(Code::kProtocol, "more bytes than the handshake has");
  }
  buffer_ += as_text(bytes);
  if (is_done_ || wanted() != 0) {
    return std::string();
  }
  if (expected_proof_.empty()) {
    return answer_greeting();
  }
  if (!is_same_mac(expected_proof_, as_bytes(buffer_))) {
    return Error(Code::kAuth, "the other end does not know the secret of this job");
  }
  is_done_ = true;
  return std::string();
}

Result<std::string> HandshakeConnector::answer_greeting() {
  ByteReader reader(buffer_);
  HVD_TRY(check_preamble(reader));
  reader.u16();
  const Bytes acceptor_nonce = reader.take(kNonceBytes);
  ByteWriter out;
  out.u32(kMagic).u16(kVersion).u16(static_cast<std::uint16_t>(claim_.role)).i32(claim_.from).i32(claim_.to);
  out.raw(nonce_.data(), nonce_.size());
  const std::string mac = mac_of(secret_, Side::kClaim, claim_, acceptor_nonce, nonce_);
  expected_proof_ = mac_of(secret_, Side::kProof, claim_, acceptor_nonce, nonce_);
  buffer_.clear();
  return std::move(out.raw(mac.data(), mac.size())).str();
}

Result<void> prove(int fd, HandshakeConnector& handshake, Deadline deadline) {
  std::array<std::uint8_t, kGreetingBytes> buffer{};
  while (!handshake.is_done()) {
    const MutableBytes wanted = MutableBytes(buffer).first(std::min(handshake.wanted(), buffer.size()));
    HVD_TRY(recv_exact(fd, wanted, deadline));
    HVD_TRY_ASSIGN(const std::string answer, handshake.feed(wanted));
    HVD_TRY(send_all(fd, as_bytes(answer), deadline));
  }
  return {};
}

}  // namespace hvd
