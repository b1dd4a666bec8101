// ControlChannel: one rank's control links in the engine's loop: frames in to handlers, frames out from queues. On the
// coordinator it has a link to every other rank, elsewhere one to the coordinator.
//
// Where two ranks share memory their frames go through its rings, and the socket between them carries only bytes that
// wake a peer who sleeps, and the end. So ranks that are awake exchange frames without a system call: poll() takes
// them.
//
// Writes never block: a slow rank has its own queue. That queue is bounded by the rank itself, since the coordinator
// only answers operations that the rank has asked for.
// Thread: engine only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

class ControlChannel {
 public:
  // Shared memory with a peer; must outlive the channel.
  struct Lane {
    ShmRing in;
    ShmRing out;
    ShmBell bell;  // the peer's
  };
  struct Peer {
    int rank = 0;
    int fd = -1;  // non-blocking, not owned; must outlive the channel
    std::optional<Lane> lane;
  };
  struct Handlers {
    std::function<void(int rank, const Frame& frame)> on_frame;
    // Nothing more will come from this rank. kLostPeer: its end is closed or broken, which says little about why;
    // kProtocol: it sent what no rank sends. Called once per rank.
    std::function<void(int rank, const Error& why)> on_end;
  };

  // `bell`: this rank's; needed where a peer has a lane.
  static Result<std::unique_ptr<ControlChannel>> create(EventLoop& loop, const std::vector<Peer>& peers,
                                                        std::optional<ShmBell> bell, Handlers handlers);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Whole frames, to all peers of this rank; how many there are.
  std::size_t send(std::string_view frames);
  // To those of its peers that are among these ranks.
  std::size_t send_to(const std::vector<int>& ranks, std::string_view frames);
  // Takes in what lies in the rings, without waiting and without the kernel. True when there was anything.
  bool poll();
  // Before the loop may sleep: peers have to wake this rank from now on. False: something has come, so it must not.
  bool sleep();
  void stay_awake();
  // Whether some peer can only be heard of through the loop.
  [[nodiscard]] bool needs_loop() const;

  // After what is queued, peers get an end of file; nothing can be sent any more.
  void close_output();

  // All peers have ended, and all that was sent has been taken by the system (or cannot be sent any more).
  [[nodiscard]] bool is_finished() const;
  // No peer has anything more to say.
  [[nodiscard]] bool have_all_ended() const;

 private:
  struct Link;

  ControlChannel(EventLoop& loop, std::optional<ShmBell> bell, Handlers handlers);
  void on_event(Link& link, std::uint32_t events);
  void on_lane_event(Link& link, std::uint32_t events);
  void read(Link& link);
  bool read_ring(Link& link);
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
