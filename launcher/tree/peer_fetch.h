// PeerFetch gets the files that this node lacks from the agent of another node (peer_server.h).
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/tree_messages.h"
#include "runtime/base/fd.h"
#include "runtime/base/frame.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {

class PeerFetch {
 public:
  struct Sink {
    // The next files' bytes. An error ends the fetch.
    std::function<Result<void>(std::string_view body)> on_bytes;
    // Nothing more comes from there; called once.
    std::function<void(const Error& why)> on_failed;
  };

  // Tries the addresses ("10.0.0.1:4711") one after the other, and asks the first that proves itself.
  PeerFetch(EventLoop& loop, const JobSecret& secret, std::vector<std::string> addresses,
            std::vector<std::uint32_t> wanted, Sink sink);
  ~PeerFetch();
  PeerFetch(const PeerFetch&) = delete;
  PeerFetch& operator=(const PeerFetch&) = delete;

 private:
  void try_next();
  Result<void> connect(const std::string& text);
  void on_connected(const std::string& text);
  void hear();
  Result<void> hear_server();
  Result<void> open_channel();
  void on_channel_bytes(Bytes bytes);
  Result<void> on_frame(const Frame& frame);
  void give_up_address(const Error& why);
  void fail(const Error& why);
  // Ends the fetch where nothing comes for so long.
  void await(Duration patience);

  EventLoop& loop_;
  const JobSecret secret_;
  const std::vector<std::string> addresses_;
  const std::vector<std::uint32_t> wanted_;
  const Sink sink_;
  std::size_t next_ = 0;  // of addresses_
  std::string why_;       // what came of those before
  Fd fd_;
  WatchId watch_ = 0;
  std::optional<HandshakeConnector> handshake_;
  std::unique_ptr<ByteChannel> channel_;
  FrameDecoder decoder_{kAgentFrames};
  Frame frame_;  // whose memory serves one after the other
  TimerId timer_ = 0;
  bool is_over_ = false;
  Scope scope_;
};

}  // namespace hvd::launch
