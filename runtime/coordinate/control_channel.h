// ControlChannel is one rank's set of control links in the engine's loop: it passes received frames to handlers, and
// sends frames from queues. The coordinator has a link to every other rank; every other rank has one to the
// coordinator.
//
// If two ranks share memory, their frames go through its rings. The socket between them then carries only bytes that
// wake a sleeping peer, and the end of file. So ranks that are awake exchange frames without a system call; poll()
// takes them in.
//
// Writes never block: each rank has its own send queue, so a slow rank delays no other. A queue is bounded, since the
// coordinator only answers operations that the rank has asked for.
// Thread: engine only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/frame.h"
#include "runtime/base/result.h"
#include "runtime/io/byte_filter.h"
#include "runtime/io/event_loop.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

class ControlChannel {
 public:
  // Lane is the shared memory by which a peer is reached; it must outlive the channel.
  struct Lane {
    ShmRing in;
    ShmRing out;
    ShmBell bell;  // wakes the peer
  };
  struct Peer {
    int rank = 0;
    int fd = -1;  // non-blocking, not owned; must outlive the channel
    std::optional<Lane> lane;
    ByteFilter* filter = nullptr;  // what the socket's bytes go through where there is no lane; alike. Null: nothing
  };
  struct Handlers {
    std::function<void(int rank, const Frame& frame)> on_frame;
    // Nothing more will come from this rank. kLostPeer: its end is closed or broken, which says little about the cause;
    // kProtocol: it sent something that is not allowed. Called once per rank.
    std::function<void(int rank, const Error& why)> on_end;
  };

  // `bell` wakes this rank; it is needed if a peer has a lane.
  static Result<std::unique_ptr<ControlChannel>> create(EventLoop& loop, const std::vector<Peer>& peers,
                                                        std::optional<ShmBell> bell, Handlers handlers);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Sends whole frames to all peers of this rank; returns how many peers there are.
  std::size_t send(std::string_view frames);
  // Sends to those of the peers that are among these ranks.
  std::size_t send_to(const std::vector<int>& ranks, std::string_view frames);
  // Sends to those of these ranks that have taken all that was sent before. The others get nothing, so that messages
  // which are repeated do not pile up for a rank that is stopped.
  std::size_t send_to_idle(const std::vector<int>& ranks, std::string_view frames);
  // Takes in what is in the rings, without waiting and without a system call. Returns true if there was anything.
  bool poll();
  // Call before the loop may sleep: from now on peers have to wake this rank. Returns false if something has arrived,
  // so that this rank must not sleep.
  bool sleep();
  void stay_awake();
  // True if some peer can be heard only through the loop.
  [[nodiscard]] bool needs_loop() const;

  // Sends peers an end of file after what is queued; nothing can be sent after that.
  void close_output();

  // True if all peers have ended, and the system has taken all that was sent (or it cannot be sent any more).
  [[nodiscard]] bool is_finished() const;
  // True if no peer will send anything more.
  [[nodiscard]] bool have_all_ended() const;

 private:
  struct Link;

  ControlChannel(EventLoop& loop, std::optional<ShmBell> bell, Handlers handlers);
  void on_event(Link& link, std::uint32_t events);
  void on_lane_event(Link& link, std::uint32_t events);
  void read(Link& link);
  bool read_ring(Link& link);
  bool take_in(Link& link, Bytes bytes);
  bool take_frames(Link& link);
  void end(Link& link, const Error& why);
  void send(Link& link, std::string_view frames);
  void flush(Link& link);
  static bool write_to_socket(Link& link);
  static bool write_to_ring(Link& link);
  static void ring_bell(Link& link);
  void update_watch(Link& link);

  // constant after construction
  EventLoop& loop_;
  std::optional<ShmBell> bell_;
  Handlers handlers_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace hvd
