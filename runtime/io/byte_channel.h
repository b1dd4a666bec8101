// ByteChannel is a byte stream over two descriptors (or one socket), driven by an EventLoop: it passes received bytes
// to a handler, and writes bytes from a queue.
//
// Thread: loop only. Handlers are called from the loop, never from inside write(); a handler may destroy the channel.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/byte_filter.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd {

class ByteChannel {
 public:
  struct Handlers {
    std::function<void(Bytes)> on_bytes;
    // The channel has ended: kLostPeer if the peer closed, otherwise what failed. Called once; no handler is called
    // after it.
    std::function<void(const Error&)> on_closed;
    // The peer of a socket sends no more, and may still read. Unset: that closes the channel. Where it is set the
    // channel closes once its own output has ended too, or cannot be written.
    std::function<void()> on_input_end;
  };

  // For a socket, pass it as `in` and leave `out` unopened. Both become non-blocking. All bytes pass through `filter`,
  // if there is one.
  static Result<std::unique_ptr<ByteChannel>> create(EventLoop& loop, Fd in, Fd out, Handlers handlers,
                                                     std::unique_ptr<ByteFilter> filter = nullptr);
  ~ByteChannel();
  ByteChannel(const ByteChannel&) = delete;
  ByteChannel& operator=(const ByteChannel&) = delete;

  void write(std::string_view bytes);
  // Reads what has arrived already, without waiting for the loop's turn; as from the loop, a handler may destroy the
  // channel. Not to be called from inside a handler.
  void read_now() { read_some(); }
  // Flushes the queue, then sends the peer an end of file; reading goes on.
  void close_output();
  // The bytes that are queued and not yet taken by the system.
  [[nodiscard]] std::size_t pending() const { return queue_.size() - sent_; }
  // True if the bytes on the wire differ from those written here, as with encryption.
  [[nodiscard]] bool is_filtered() const { return filter_ != nullptr; }
  [[nodiscard]] int in_fd() const { return in_.get(); }
  [[nodiscard]] int out_fd() const { return is_socket_ ? in_.get() : out_.get(); }

 private:
  ByteChannel(EventLoop& loop, Fd in, Fd out, bool is_socket, Handlers handlers, std::unique_ptr<ByteFilter> filter);
  Result<void> start();
  void on_events(std::uint32_t events);
  void read_some();
  // Sets whether flush() is called when the peer takes more.
  void watch_output(bool is_wanted);
  // Returns whether more may be read: the channel has not ended, and no handler has destroyed it.
  bool hand_out(Bytes bytes);
  void on_end_of_input();
  void fail_later(const Error& why);
  void flush();
  void finish_output();
  void fail(const Error& why);

  // constant after construction
  EventLoop& loop_;
  const bool is_socket_;
  Handlers handlers_;
  // loop only
  std::unique_ptr<ByteFilter> filter_;  // null: bytes are sent unchanged
  Fd in_;
  Fd out_;  // not open if `in_` is a socket, of which one descriptor is enough
  WatchId in_watch_ = 0;
  WatchId out_watch_ = 0;
  std::string queue_;
  std::size_t sent_ = 0;
  bool is_input_over_ = false;
  bool is_closing_output_ = false;
  bool has_ended_ = false;
  Scope scope_;
};

}  // namespace hvd
