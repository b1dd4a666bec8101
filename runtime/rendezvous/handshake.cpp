#include "runtime/rendezvous/handshake.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/io/socket.h"

namespace hvd {
namespace {

constexpr std::uint32_t kMagic = 0x4C445648U;  // "HVDL"
constexpr std::uint16_t kVersion = 2;
constexpr std::size_t kPreambleBytes = 8;  // the start of Greeting and Claim: magic, version, protection
constexpr std::size_t kTextSizesAt = 10;   // the offset of the two text lengths in a Claim

// Transcript holds everything that both ends have sent. The macs prove it, and the keys are derived from it.
struct Transcript {
  bool is_sealed = false;
  LinkClaim claim;
  Bytes acceptor_nonce;
  Bytes connector_nonce;
  Bytes acceptor_share;
  Bytes connector_share;

  [[nodiscard]] std::string bytes() const {
    ByteWriter text;
    text.u16(kVersion).u16(is_sealed ? 1 : 0).u16(static_cast<std::uint16_t>(claim.role));
    text.u8(static_cast<std::uint8_t>(claim.node.size())).u8(static_cast<std::uint8_t>(claim.address.size()));
    text.i32(claim.from).i32(claim.to);
    for (const Bytes part : {acceptor_nonce, connector_nonce, acceptor_share, connector_share}) {
      text.raw(part.data(), part.size());
    }
    text.raw(claim.node.data(), claim.node.size()).raw(claim.address.data(), claim.address.size());
    return std::move(text).str();
  }
};

enum class Side { kClaim, kProof };

std::string mac_of(const JobSecret& secret, Side side, const Transcript& transcript) {
  static constexpr std::size_t kLabelBytes = 16;
  std::string text = side == Side::kClaim ? "hvd link claim" : "hvd link proof";
  text.resize(kLabelBytes, '\0');
  return hmac_sha256(secret, as_bytes(text + transcript.bytes()));
}

KeyShare share_of(Bytes bytes) {
  KeyShare share{};
  std::copy(bytes.begin(), bytes.end(), share.begin());
  return share;
}

KeyShare share_in(const std::optional<KeyPair>& key) {
  return key ? key->share() : KeyShare{};
}

// Derives the keys as the connector sees them: its `sending` comes first. The acceptor swaps the two.
Result<RecordKeys> keys_of(const JobSecret& secret, const KeyPair& own, Bytes other, const Transcript& transcript) {
  HVD_TRY_ASSIGN(const SharedKey shared, own.agree(share_of(other)));
  std::string salt(as_text(transcript.acceptor_nonce));
  salt += as_text(transcript.connector_nonce);
  std::string known(as_text(secret));
  known += as_text(shared);
  const std::string key = hkdf_extract(as_bytes(salt), as_bytes(known));
  RecordKeys keys;
  const std::string bytes =
      hkdf_expand(as_bytes(key), "hvd record keys" + transcript.bytes(), 2 * (kCipherKeyBytes + kCipherNonceBytes));
  auto at = bytes.begin();
  for (RecordKey* each : {&keys.sending, &keys.receiving}) {
    std::copy_n(at, each->key.size(), each->key.begin());
    at += kCipherKeyBytes;
    std::copy_n(at, each->salt.size(), each->salt.begin());
    at += kCipherNonceBytes;
  }
  return keys;
}

// Checks magic, version and protection, with which Greeting and Claim begin.
Result<void> check_preamble(ByteReader& reader, bool is_sealed) {
  if (reader.u32() != kMagic) {
    return Error(Code::kProtocol, "the other end is no part of hvdrun");
  }
  if (const std::uint16_t version = reader.u16(); version != kVersion) {
    return Error(Code::kProtocol, "the other end speaks version " + std::to_string(version) +
                                      " of the link, this one " + std::to_string(kVersion) +
                                      "; all must be of one version of hvdrun");
  }
  if (const std::uint16_t protection = reader.u16(); protection != (is_sealed ? 1 : 0)) {
    return Error(Code::kProtocol, std::string("the connection is ") + (is_sealed ? "" : "not ") +
                                      "to be encrypted here, and at the other end it is " + (is_sealed ? "not" : "so"));
  }
  return {};
}

// Checks the preamble as soon as it has come. So an end of another version gets an error at once instead of a timeout.
Result<void> check_preamble_in(std::string_view message, bool is_sealed) {
  if (message.size() < kPreambleBytes) {
    return {};
  }
  ByteReader reader(message);
  return check_preamble(reader, is_sealed);
}

// True if a text may be shown in a message to the user. A claim's texts come from outside, perhaps from an attacker who
// knows the secret.
bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::size_t whole_claim(std::string_view begun) {
  return kClaimBytes + static_cast<std::uint8_t>(begun[kTextSizesAt]) +
         static_cast<std::uint8_t>(begun[kTextSizesAt + 1]);
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
    case LinkRole::kFiles:
      return "files";
    case LinkRole::kRounds:
      return "rounds";
  }
  return "?";
}

bool operator==(const LinkClaim& a, const LinkClaim& b) {
  return a.role == b.role && a.from == b.from && a.to == b.to && a.node == b.node && a.address == b.address;
}

Result<Nonce> make_nonce() {
  Nonce nonce;
  HVD_TRY(fill_random(nonce));
  return nonce;
}

HandshakeAcceptor::HandshakeAcceptor(const JobSecret& secret, int rank, const Nonce& nonce, std::optional<KeyPair> key)
    : secret_(secret), rank_(rank), nonce_(nonce), key_(std::move(key)) {}

std::string HandshakeAcceptor::greeting() const {
  const KeyShare share = share_in(key_);
  ByteWriter out;
  out.u32(kMagic).u16(kVersion).u16(key_ ? 1 : 0).raw(nonce_.data(), nonce_.size()).raw(share.data(), share.size());
  return std::move(out).str();
}

std::size_t HandshakeAcceptor::wanted() const {
  return (claim_.size() < kClaimBytes ? kClaimBytes : whole_claim(claim_)) - claim_.size();
}

Result<std::optional<LinkClaim>> HandshakeAcceptor::feed(Bytes bytes) {
  if (bytes.size() > wanted()) {
    return Error(Code::kProtocol, "more bytes than a claim has");
  }
  claim_ += as_text(bytes);
  HVD_TRY(check_preamble_in(claim_, key_.has_value()));
  if (wanted() != 0) {
    return std::optional<LinkClaim>();
  }
  return check_claim();
}

Result<std::optional<LinkClaim>> HandshakeAcceptor::check_claim() {
  ByteReader reader(std::string_view(claim_).substr(kPreambleBytes));
  Transcript transcript;
  LinkClaim& claim = transcript.claim;
  const std::uint16_t role = reader.u16();
  claim.role = static_cast<LinkRole>(role);
  const std::size_t node = reader.u8();
  const std::size_t address = reader.u8();
  claim.from = reader.i32();
  claim.to = reader.i32();
  const KeyShare own_share = share_in(key_);
  transcript.is_sealed = key_.has_value();
  transcript.acceptor_nonce = nonce_;
  transcript.acceptor_share = own_share;
  transcript.connector_nonce = reader.take(kNonceBytes);
  transcript.connector_share = reader.take(kShareBytes);
  const Bytes mac = reader.take(kMacBytes);
  claim.node = as_text(reader.take(node));
  claim.address = as_text(reader.take(address));
  if (!is_same_mac(mac_of(secret_, Side::kClaim, transcript), mac)) {
    return Error(Code::kAuth, "it does not know the secret of this job");
  }
  if (!is_printable(claim.node) || !is_printable(claim.address)) {
    return Error(Code::kProtocol, "its name or the address that it has called is no text");
  }
  const bool is_for_rank = claim.role == LinkRole::kControl || claim.role == LinkRole::kData ||
                           claim.role == LinkRole::kSegment || claim.role == LinkRole::kRounds;
  const bool is_role = rank_ == kLauncher     ? claim.role == LinkRole::kAgent
                       : rank_ == kFileServer ? claim.role == LinkRole::kFiles
                                              : is_for_rank;
  if (!is_role || claim.to != rank_) {
    return Error(Code::kProtocol, "it asked for role " + std::to_string(role) + " of rank " + std::to_string(claim.to) +
                                      "; this is rank " + std::to_string(rank_));
  }
  if (key_) {
    HVD_TRY_ASSIGN(keys_, keys_of(secret_, *key_, transcript.connector_share, transcript));
    std::swap(keys_.sending, keys_.receiving);
  }
  proof_ = mac_of(secret_, Side::kProof, transcript);
  return std::optional<LinkClaim>(claim);
}

HandshakeConnector::HandshakeConnector(const JobSecret& secret, LinkClaim claim, const Nonce& nonce,
                                       std::optional<KeyPair> key, std::optional<KeyShare> expected)
    : secret_(secret), claim_(std::move(claim)), nonce_(nonce), key_(std::move(key)), expected_(expected) {
  HVD_CHECK(claim_.node.size() <= kMaxClaimText && claim_.address.size() <= kMaxClaimText);
}

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
  if (expected_proof_.empty()) {
    HVD_TRY(check_preamble_in(buffer_, key_.has_value()));
  }
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
  ByteReader reader(std::string_view(buffer_).substr(kPreambleBytes));
  const KeyShare own_share = share_in(key_);
  Transcript transcript{key_.has_value(),         claim_,   reader.take(kNonceBytes), nonce_,
                        reader.take(kShareBytes), own_share};
  if (expected_ && share_of(transcript.acceptor_share) != *expected_) {
    return Error(Code::kAuth, "the other end is not the one that this process was to call");
  }
  if (key_) {
    HVD_TRY_ASSIGN(keys_, keys_of(secret_, *key_, transcript.acceptor_share, transcript));
  }
  ByteWriter out;
  out.u32(kMagic).u16(kVersion).u16(key_ ? 1 : 0).u16(static_cast<std::uint16_t>(claim_.role));
  out.u8(static_cast<std::uint8_t>(claim_.node.size())).u8(static_cast<std::uint8_t>(claim_.address.size()));
  out.i32(claim_.from).i32(claim_.to);
  out.raw(nonce_.data(), nonce_.size()).raw(own_share.data(), own_share.size());
  const std::string mac = mac_of(secret_, Side::kClaim, transcript);
  expected_proof_ = mac_of(secret_, Side::kProof, transcript);
  out.raw(mac.data(), mac.size());
  out.raw(claim_.node.data(), claim_.node.size()).raw(claim_.address.data(), claim_.address.size());
  buffer_.clear();
  return std::move(out).str();
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
