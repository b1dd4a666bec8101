#include "runtime/link/handshake.h"

#include <errno.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

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
  const Bytes message = as_bytes(text.str());
  std::array<std::uint8_t, kMacBytes> mac{};
  unsigned int size = 0;
  const auto* made = ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), message.data(),
                            message.size(), mac.data(), &size);
  // An empty mac never equals a received one.
  return made != nullptr && size == mac.size() ? std::string(as_text(mac)) : std::string();
}

bool macs_are_equal(std::string_view expected, Bytes received) {
  return expected.size() == kMacBytes && received.size() == kMacBytes &&
         CRYPTO_memcmp(expected.data(), received.data(), kMacBytes) == 0;
}

// Magic and version, which start both first messages.
Result<void> check_preamble(ByteReader& reader) {
  if (reader.u32() != kMagic) {
    return Error(Code::kProtocol, "the other end is not a rank of hvdrun");
  }
  if (const std::uint16_t version = reader.u16(); version != kVersion) {
    return Error(Code::kProtocol, "the other end speaks version " + std::to_string(version) +
                                      " of the link, this one " + std::to_string(kVersion) +
                                      "; all ranks must run one libhvd");
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
  if (!macs_are_equal(mac_of(secret_, Side::kClaim, claim, nonce_, connector_nonce), mac)) {
    return Error(Code::kAuth, "it does not know the secret of this job");
  }
  const bool is_role =
      claim.role == LinkRole::kControl || claim.role == LinkRole::kData || claim.role == LinkRole::kSegment;
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
  if (!macs_are_equal(expected_proof_, as_bytes(buffer_))) {
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
  if (mac.empty() || expected_proof_.empty()) {
    return Error(Code::kInternal, "HMAC-SHA-256 is not available");
  }
  buffer_.clear();
  return std::move(out.raw(mac.data(), mac.size())).str();
}

}  // namespace hvd
