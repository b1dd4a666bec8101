// Records carry the data of an encrypted connection after the handshake (handshake.h). Each record is a piece of the
// stream, sealed with the key of its direction. An eavesdropper learns only its length. If a record is changed,
// repeated, left out or reordered, opening fails.
//
// On the wire, little-endian: u32 length | length bytes of ciphertext | 16 bytes of tag. 1 <= length <= 65536.
//   AES-256-GCM; the four bytes of the length are authenticated with the text; nonce = the key's salt, whose last eight
//   bytes are xored with the record's number of 64 bits, big-endian (as TLS 1.3 has it: RFC 8446, 5.3).
//   After each 2^20 records both ends replace the key by one that is derived from it (HKDF). This stays far below the
//   limit of data for one key of GCM. The last record number is not used: the stream is refused instead.
// The end of a stream is not authenticated. Anybody in between can cut a connection without forging anything, and the
// protocols on it have messages of their own that end a conversation.
//
// Sealer and Opener are the state without a socket, and total over any input. Thread: any, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"
#include "runtime/io/byte_filter.h"
#include "runtime/rendezvous/crypto.h"

namespace hvd {

inline constexpr std::size_t kRecordHeaderBytes = 4;
inline constexpr std::size_t kRecordBytes = 64U << 10U;  // of text in one record, at most
inline constexpr std::size_t kRecordOverhead = kRecordHeaderBytes + kTagBytes;
inline constexpr std::uint64_t kRecordsOfKey = 1U << 20U;

// The key of one direction.
struct RecordKey {
  CipherKey key{};
  CipherNonce salt{};
};
bool operator==(const RecordKey& a, const RecordKey& b);

// The keys of both directions, as seen by the end that holds them.
struct RecordKeys {
  RecordKey sending;
  RecordKey receiving;
};

// RecordCipher is the common part of Sealer and Opener: the cipher of one direction and the number of its next record.
// It renews the key.
class RecordCipher {
 public:
  RecordCipher(const RecordKey& key, std::uint64_t records_of_key, std::uint64_t first)
      : key_(key), records_of_key_(records_of_key), number_(first) {}

  Result<void> seal(Bytes header, std::span<const Bytes> plain, std::uint8_t* out);
  Result<void> open(Bytes header, MutableBytes sealed);

 private:
  // Returns the nonce of the next record; `aead_` has the key for it.
  Result<CipherNonce> next();

  RecordKey key_;
  std::uint64_t records_of_key_;
  std::uint64_t number_;
  std::optional<Aead> aead_;
};

class RecordSealer {
 public:
  // The second and third parameter are for tests.
  explicit RecordSealer(const RecordKey& key, std::uint64_t records_of_key = kRecordsOfKey, std::uint64_t first = 0)
      : cipher_(key, records_of_key, first) {}
  // Appends the records of `text` to `wire`.
  Result<void> seal(std::string_view text, std::string& wire);
  // Seals one record of these pieces, 1 to kRecordBytes in all, to `out`, which has room for it.
  Result<void> seal_one(std::span<const Bytes> pieces, std::uint8_t* out);

 private:
  RecordCipher cipher_;
};

class RecordOpener {
 public:
  explicit RecordOpener(const RecordKey& key, std::uint64_t records_of_key = kRecordsOfKey, std::uint64_t first = 0)
      : cipher_(key, records_of_key, first) {}
  void feed(Bytes wire);
  // The same without a copy: room() gives space for so many bytes of the wire, and note_fed() says how many were put
  // there. room() invalidates the bytes that next() gave out.
  MutableBytes room(std::size_t bytes);
  void note_fed(std::size_t bytes) { end_ += bytes; }
  // Returns the text of the next whole record, valid until the next call of room() or feed(); nullopt: more bytes are
  // needed. An error is kAuth or kProtocol, and every later call returns the same.
  Result<std::optional<Bytes>> next();
  // The number of bytes that were fed and not taken as records yet.
  [[nodiscard]] std::size_t buffered() const { return end_ - start_; }

 private:
  Result<std::optional<Bytes>> open_next();

  RecordCipher cipher_;
  std::vector<std::uint8_t> buffer_;
  std::size_t start_ = 0;  // buffer_ holds the bytes from start_ to end_
  std::size_t end_ = 0;
  std::optional<Error> failure_;
};

// Makes the filter by which a ByteChannel encrypts and decrypts its bytes.
std::unique_ptr<ByteFilter> make_record_filter(const RecordKeys& keys);

}  // namespace hvd
