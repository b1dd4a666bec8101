#include "runtime/rendezvous/record.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/rendezvous/hmac.h"

namespace hvd {
namespace {

constexpr std::string_view kNextKey = "hvd next record key";

// Derives the key and salt that follow `key`. They do not reveal the earlier key.
RecordKey key_after(const RecordKey& key) {
  const std::string bytes = hkdf_expand(key.key, kNextKey, kCipherKeyBytes + kCipherNonceBytes);
  RecordKey next;
  std::copy_n(bytes.begin(), next.key.size(), next.key.begin());
  std::copy_n(bytes.begin() + kCipherKeyBytes, next.salt.size(), next.salt.begin());
  return next;
}

class RecordFilter final : public ByteFilter {
 public:
  explicit RecordFilter(const RecordKeys& keys) : sealer_(keys.sending), opener_(keys.receiving) {}

  Result<void> seal(std::string_view bytes, std::string& wire) override { return sealer_.seal(bytes, wire); }
  void feed(Bytes wire) override { opener_.feed(wire); }
  Result<std::optional<Bytes>> next() override { return opener_.next(); }

 private:
  RecordSealer sealer_;
  RecordOpener opener_;
};

}  // namespace

bool operator==(const RecordKey& a, const RecordKey& b) {
  return a.key == b.key && a.salt == b.salt;
}

Result<CipherNonce> RecordCipher::next() {
  if (number_ == std::numeric_limits<std::uint64_t>::max()) {
    return Error(Code::kResource, "the connection has carried as many records as can be numbered");
  }
  if (number_ != 0 && number_ % records_of_key_ == 0) {
    key_ = key_after(key_);
    aead_.reset();
  }
  if (!aead_) {
    HVD_TRY_ASSIGN(aead_, Aead::create(key_.key));
  }
  CipherNonce nonce = key_.salt;
  for (std::size_t i = 0; i < sizeof number_; ++i) {
    std::uint8_t& byte = nonce[nonce.size() - 1 - i];
    byte = static_cast<std::uint8_t>(byte ^ (number_ >> (8U * i)));
  }
  ++number_;
  return nonce;
}

Result<void> RecordCipher::seal(Bytes header, std::span<const Bytes> plain, std::uint8_t* out) {
  HVD_TRY_ASSIGN(const CipherNonce nonce, next());
  return aead_->seal(nonce, header, plain, out);
}

Result<void> RecordCipher::open(Bytes header, MutableBytes sealed) {
  HVD_TRY_ASSIGN(const CipherNonce nonce, next());
  return aead_->open(nonce, header, sealed);
}

Result<void> RecordSealer::seal(std::string_view text, std::string& wire) {
  const std::size_t records = (text.size() + kRecordBytes - 1) / kRecordBytes;
  wire.reserve(wire.size() + text.size() + records * kRecordOverhead);
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, kRecordBytes);
    text.remove_prefix(piece.size());
    const std::size_t at = wire.size();
    wire.resize(at + kRecordOverhead + piece.size());
    const Bytes bytes = as_bytes(piece);
    HVD_TRY(seal_one(std::span(&bytes, 1), reinterpret_cast<std::uint8_t*>(wire.data()) + at));
  }
  return {};
}

Result<void> RecordSealer::seal_one(std::span<const Bytes> pieces, std::uint8_t* out) {
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    length += piece.size();
  }
  HVD_CHECK(length > 0 && length <= kRecordBytes);
  ByteWriter header;
  header.u32(static_cast<std::uint32_t>(length));
  std::memcpy(out, header.str().data(), kRecordHeaderBytes);
  return cipher_.seal(Bytes(out, kRecordHeaderBytes), pieces, out + kRecordHeaderBytes);
}

void RecordOpener::feed(Bytes wire) {
  const MutableBytes space = room(wire.size());
  std::copy(wire.begin(), wire.end(), space.begin());
  note_fed(wire.size());
}

MutableBytes RecordOpener::room(std::size_t bytes) {
  if (start_ == end_) {
    start_ = end_ = 0;
  }
  if (buffer_.size() - end_ < bytes) {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(start_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= start_;
    start_ = 0;
    if (buffer_.size() - end_ < bytes) {
      buffer_.resize(end_ + bytes);
    }
  }
  return MutableBytes(buffer_).subspan(end_, bytes);
}

Result<std::optional<Bytes>> RecordOpener::next() {
  if (failure_) {
    return *failure_;
  }
  auto opened = open_next();
  if (!opened.ok()) {
    failure_ = opened.error();
  }
  return opened;
}

Result<std::optional<Bytes>> RecordOpener::open_next() {
  if (buffered() < kRecordHeaderBytes) {
    return std::optional<Bytes>();
  }
  const MutableBytes rest = MutableBytes(buffer_).subspan(start_, buffered());
  const Bytes header = rest.first(kRecordHeaderBytes);
  const std::size_t length = ByteReader(header).u32();
  if (length == 0 || length > kRecordBytes) {
    return Error(Code::kProtocol, "a record of " + std::to_string(length) +
                                      " bytes came on an encrypted connection; the other end never sends such");
  }
  if (rest.size() < kRecordOverhead + length) {
    return std::optional<Bytes>();
  }
  const MutableBytes sealed = rest.subspan(kRecordHeaderBytes, length + kTagBytes);
  HVD_TRY(cipher_.open(header, sealed));
  start_ += kRecordOverhead + length;
  return std::optional<Bytes>(sealed.first(length));
}

std::unique_ptr<ByteFilter> make_record_filter(const RecordKeys& keys) {
  return std::make_unique<RecordFilter>(keys);
}

}  // namespace hvd
