// PeerServer gives files that are on this node already to agents of other nodes of the job, so that the launcher need
// not send them to each node itself. Whoever calls must prove to know the job's secret, and all is encrypted.
//
// What arrives here while somebody calls is passed on as it came, from memory. Only a caller that is far behind costs a
// read of the files. Whether all is as the list says, each node finds out by itself.
//
// Thread: loop only. Blocks for as long as reading a frame's bytes takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/tree_portion.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/base/fd.h"
#include "runtime/base/frame.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {

class PeerServer {
 public:
  struct Source {
    std::string root;
    std::shared_ptr<const std::vector<TreeEntry>> list;
    // The first place in the list whose content is not here yet; all before it are.
    std::function<std::size_t()> first_missing;
  };

  static Result<std::unique_ptr<PeerServer>> listen(EventLoop& loop, const JobSecret& secret, Source source);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

  [[nodiscard]] int port() const { return port_; }
  // More is here: FileBytes of these files, as places in the list; the first from an offset on. Of the last one so much
  // is here; 0: all.
  void on_arrived(std::string_view body, std::span<const std::uint32_t> files, std::uint64_t offset,
                  std::uint64_t last_bytes);

 private:
  struct Caller {
    Fd fd;  // until it has proven itself
    std::optional<HandshakeAcceptor> handshake;
    WatchId watch = 0;
    TimerId timer = 0;
    std::unique_ptr<ByteChannel> channel;
    FrameDecoder decoder{kAgentFrames};
    std::vector<std::uint32_t> wanted;
    FilePlace place;
    std::int64_t credit = kTreeWindow;
  };
  // What has arrived, for callers that are there.
  struct Kept {
    std::vector<std::uint32_t> files;
    std::uint64_t offset = 0;
    std::uint64_t last_bytes = 0;
    std::string frame;
    std::size_t body_bytes = 0;
  };

  PeerServer(EventLoop& loop, const JobSecret& secret, Source source)
      : loop_(loop), secret_(secret), source_(std::move(source)) {}
  void greet(Fd fd);
  void hear(std::uint64_t number);
  Result<bool> hear_proof(Caller& caller);
  Result<void> open_channel(std::uint64_t number, Caller& caller);
  void on_bytes(std::uint64_t number, Bytes bytes);
  Result<void> on_frame(Caller& caller, const Frame& frame);
  // Sends a frame to each that may get one, and goes on when the loop has done what else there is.
  void send_more();
  void send_soon();
  Result<bool> send_portion(Caller& caller);
  // Null: what the caller needs next is in no frame that is kept.
  [[nodiscard]] const Kept* kept_for(const Caller& caller) const;
  // Lets go what all callers have: memory that is used again at once stays in the processor's cache.
  void drop_passed();
  void tell_waiting();
  void drop(std::uint64_t number);

  EventLoop& loop_;
  const JobSecret secret_;
  const Source source_;
  Fd listener_;
  int port_ = 0;
  std::unique_ptr<AcceptWatch> accept_;
  std::map<std::uint64_t, Caller> callers_;
  std::uint64_t next_caller_ = 1;
  std::deque<Kept> kept_;  // the oldest first
  TimerId timer_ = 0;
  TimerId alive_timer_ = 0;
};

}  // namespace hvd::launch
