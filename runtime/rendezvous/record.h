// Records: how a connection that both ends have proven (handshake.h) goes on encrypted. Each record is a piece of the
// stream, sealed with the direction's key; whoever reads the wire learns its length, and whoever changes, repeats,
// leaves out or reorders one is noticed by the next.
//
// On the wire, little-endian: u32 length | length bytes of ciphertext | 16 bytes of tag. 1 <= length <= 65536.
//   AES-256-GCM; the four bytes of the length are authenticated with the text; nonce = the key's salt, whose last eight
//   bytes are xored with the record's number of 64 bits, big-endian (as TLS 1.3 has it: RFC 8446, 5.3).
//   After each 2^20 records both ends replace the key by one derived from it (HKDF), which stays far below what may be
//   encrypted with one key of GCM. The last number is not used: the stream is refused instead.
// The end of a stream is not authenticated: whoever can cut a connection needs no forgery for it, and the conversations
// on it say in words when they are over. Measured on one core with AES instructions: see README.md.
//
// Sealer and Opener are the state without the socket; total over any input. Thread: any one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/byte_filter.h"
#include "runtime/base/bytes.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/crypto.h"

namespace hvd {

inline constexpr std::size_t kRecordHeaderBytes = 4;
inline constexpr std::size_t kRecordBytes = 64U << 10U;  // of text, at most
inline constexpr std::size_t kRecordOverhead = kRecordHeaderBytes + kTagBytes;
inline constexpr std::uint64_t kRecordsOfKey = 1U << 20U;

// Of one direction.
struct RecordKey {
  CipherKey key{};
  CipherNonce salt{};
};
bool operator==(const RecordKey& a, const RecordKey& b);

// Of both, as the end sees them that holds them.
struct RecordKeys {
  RecordKey sending;
  RecordKey receiving;
};

// The cipher of one direction and the number of its next record; renews its key. What Sealer and Opener share.
class RecordCipher {
 public:
  RecordCipher(const RecordKey& key, std::uint64_t records_of_key, std::uint64_t first)
      : key_(key), records_of_key_(records_of_key), number_(first) {}

  Result<void> seal(Bytes header, std::span<const Bytes> plain, std::uint8_t* out);
  Result<void> open(Bytes header, MutableBytes sealed);

 private:
  // The nonce of the next record, with `aead_` made for it.
  Result<CipherNonce> next();

  RecordKey key_;
  std::uint64_t records_of_key_;
  std::uint64_t number_;
  std::optional<Aead> aead_;
};

class RecordSealer {
 public:
  // The second and third value are for tests.
  explicit RecordSealer(const RecordKey& key, std::uint64_t records_of_key = kRecordsOfKey, std::uint64_t first = 0)
      : cipher_(key, records_of_key, first) {}
  // Appends the records of `text` to `wire`.
  Result<void> seal(std::string_view text, std::string& wire);
  // One record of these pieces, which are 1 to kRecordBytes in all, written to `out`, which has room for it.
  Result<void> seal_one(std::span<const Bytes> pieces, std::uint8_t* out);

 private:
  RecordCipher cipher_;
};

class RecordOpener {
 public:
  explicit RecordOpener(const RecordKey& key, std::uint64_t records_of_key = kRecordsOfKey, std::uint64_t first = 0)
      : cipher_(key, records_of_key, first) {}
  void feed(Bytes wire);
  // The same without a copy: where to put so many bytes of the wire, and how many have come there. What next() gave
  // out is gone with the first.
  MutableBytes room(std::size_t bytes);
  void note_fed(std::size_t bytes) { end_ += bytes; }
  // The text of the next whole record, valid until the next call of either; nullopt when more bytes are needed. After
  // an error, which is kAuth or kProtocol, it stays with it.
  Result<std::optional<Bytes>> next();
  // Bytes of records that were not taken yet.
  [[nodiscard]] std::size_t buffered() const { return end_ - start_; }

 private:
  Result<std::optional<Bytes>> open_next();

  RecordCipher cipher_;
  std::vector<std::uint8_t> buffer_;
  std::size_t start_ = 0;  // of what is in it, and its end
  std::size_t end_ = 0;
  std::optional<Error> failure_;
};

// What a ByteChannel's bytes go through.
std::unique_ptr<ByteFilter> make_record_filter(const RecordKeys& keys);

}  // namespace hvd
