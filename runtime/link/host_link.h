// HostLink is one end of a connection between the leaders of two nodes, for the messages of rounds (host_rounds.h). It
// cuts the stream into messages, and never waits.
//
// A message is: mark | head | zeros up to a multiple of 64 bytes | data | end mark. It begins with its length, and is
// numbered, as frames of the other data connections are (link_steps.h); so a stream that is out of step is kProtocol,
// and names both ends. The zeros give the data the alignment of its elements.
//   mark:     u32 magic | u32 number of the message in this direction | u64 round | u32 kind | u32 bytes of the head |
//             u32 bytes of the data | u32 0
//   end mark: u32 magic | u32 number | u64 round
// All are little-endian. On an encrypted connection all of it is sealed (sealed_stream.h).
//
// A message that was begun must be sent to its end, but the peer may leave it unread for as long as it likes. Then the
// rest is copied, and sent before the next message. Thread: one at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/link/sealed_stream.h"

namespace hvd {

class HostLink {
 public:
  static constexpr std::size_t kMostHead = 512;
  static constexpr std::size_t kMostData = 128U << 10U;

  // A node answers a round with one of these: a post takes part in this round; a decline says that the node takes part
  // in no round up to this one that it has not posted in.
  enum class Kind : std::uint32_t { kPost = 1, kDecline = 2 };
  struct Message {
    Kind kind = Kind::kDecline;
    std::uint64_t round = 0;
    Bytes head;
    Bytes data;
  };
  struct Ends {
    std::string there;  // "node 2 (rank 5)", for errors
    std::string here;   // "rank 0"
  };

  // `fd` is non-blocking; `sealed` is null if the connection is not encrypted.
  HostLink(Fd fd, std::unique_ptr<SealedStream> sealed, Ends ends);

  // Begins a post, when nothing waits to be sent. Its memory must stay as it is until flush() has returned true, or
  // keep_rest() was called.
  void post(std::uint64_t round, Bytes head, Bytes data);
  // Declines all rounds up to this one, after what waits to be sent. Several that wait are sent as one.
  void decline(std::uint64_t round);
  // Sends as much as the system takes. True: nothing waits any more.
  Result<bool> flush();
  void keep_rest();

  // Returns the next message, if all of it has come; it is valid until the next call. `expected` is the length of the
  // message that is likely to come, see length_of(); it only saves system calls.
  Result<std::optional<Message>> receive(std::size_t expected);
  // Leaves the message that receive() has just returned for its next call.
  void put_back();
  static std::size_t length_of(std::size_t head_bytes, std::size_t data_bytes);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const Ends& ends() const { return ends_; }
  // The error of a connection that has ended.
  [[nodiscard]] Error lost(const std::string& why) const;

 private:
  static constexpr std::size_t kMarkBytes = 32;
  static constexpr std::size_t kEndBytes = 16;
  static constexpr std::size_t kFrontBytes = 576;  // mark, head and zeros
  static constexpr std::size_t kMostParts = 4;
  using Parts = std::array<iovec, kMostParts>;

  void begin(Kind kind, std::uint64_t round, Bytes head, Bytes data);
  std::size_t unsent_parts(Parts& parts) const;
  [[nodiscard]] std::size_t unsent() const;
  void note_sent(std::size_t bytes);
  Result<std::size_t> send_parts();
  Result<std::size_t> send_sealed();
  Result<std::size_t> read_some(std::size_t wanted);
  Result<std::size_t> read_sealed(std::size_t wanted);
  Result<std::size_t> whole_length() const;
  [[nodiscard]] Error out_of_step(const std::string& what) const;

  // constant after construction
  const Fd fd_;
  const std::unique_ptr<SealedStream> sealed_;
  const Ends ends_;
  // one thread at a time
  std::vector<std::uint8_t> kept_;  // the rest of an earlier message ...
  std::size_t kept_sent_ = 0;       // ... and how much of it was sent
  alignas(16) std::array<std::uint8_t, kFrontBytes> front_{};
  std::size_t front_bytes_ = 0;  // of the message that is being sent; 0: none is
  Bytes data_;
  std::array<std::uint8_t, kEndBytes> end_{};
  std::size_t sent_ = 0;                   // bytes of that message
  std::optional<std::uint64_t> declined_;  // waits to be sent
  std::uint32_t posted_count_ = 0;         // messages begun
  std::unique_ptr<std::uint8_t[]> in_;     // at a multiple of 64 from in_at_
  std::uint8_t* in_at_ = nullptr;
  std::size_t in_bytes_ = 0;  // have come
  std::size_t taken_ = 0;     // of these belong to the message that receive() returned last
  std::uint32_t received_count_ = 0;
};

}  // namespace hvd
