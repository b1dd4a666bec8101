// RankHub is the agent's unix socket, where this node's ranks meet the job (runtime/rendezvous/store_wire.h). It checks
// who calls, hands out the job secret, and relays exchanges and notices.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/frame.h"
#include "runtime/base/log.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/failure_news.h"
#include "runtime/rendezvous/generation_place.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

class RankHub {
 public:
  struct Sink {
    // `is_waiting`: it is no member of the newest generation, or was one and has left.
    std::function<void(int rank, std::uint32_t generation, bool is_waiting)> on_joined;
    std::function<void(int rank, std::uint32_t generation, const std::string& key, const std::string& value)>
        on_exchange;
    std::function<void(int rank, std::uint32_t generation, const FailureNews& news)> on_failure;
  };
  struct Admission {
    std::string token;
    JobSecret secret{};
    int size = 0;
  };

  // Listens at `path`, in a directory that only this user can enter.
  static Result<std::unique_ptr<RankHub>> listen(EventLoop& loop, const std::string& path, Sink sink, Log& log);
  ~RankHub();
  RankHub(const RankHub&) = delete;
  RankHub& operator=(const RankHub&) = delete;

  // Accepts the callers that have connected; until then they wait.
  void admit(Admission admission);
  // Reads what ranks have said by now, even those that have just called. Then a rank's last message is known before its
  // end is.
  void catch_up();
  // Call before ranks start. In an elastic job a rank that has left its generation, and calls again, waits for the
  // next.
  void set_elastic(bool is_elastic) { is_elastic_ = is_elastic; }
  // The same where the job runs already: no rank of this node has a place in the present generation.
  void set_joining(std::uint32_t generation) {
    generation_ = generation;
    is_joining_ = true;
  }
  // A generation is formed: its ranks that wait are welcomed, the others when they call. `places` has those of this
  // node.
  void form_generation(std::uint32_t number, const std::map<int, GenerationPlace>& places);
  // These ranks are told to end, now or when they call.
  void release(const std::vector<std::int32_t>& ranks);
  // The members hear, also those that call later, that ranks wait for them to leave.
  void tell_changed();
  // Whether ranks are on their way that the members will take in. The members hear of it, also those that call later.
  void set_growing(bool is_growing);
  // Sends the values to all ranks of the generation that asked for `key`.
  void send_exchanged(std::uint32_t generation, const std::string& key, const std::vector<std::string>& values);
  // Tells all ranks that the job is over, also those that connect later.
  void send_notice(const std::string& cause);
  // The generation is over: tells the connected members why they have to connect again. What they asked for is
  // forgotten, and who calls waits for the next one.
  void turn_away(const std::string& cause);

 private:
  struct Caller {
    std::unique_ptr<ByteChannel> channel;
    FrameDecoder decoder;
    int rank = -1;  // as it was started; -1: has not said hello
    std::uint32_t generation = 0;
    bool is_waiting = false;  // for a generation of which it is a member
    bool is_turned_away = false;
    bool is_visitor = false;                 // has something to tell, and does not join
    std::vector<std::string> waiting_for{};  // keys
    TimerId hello_timer = 0;
  };

  RankHub(EventLoop& loop, Fd listener, std::string path, Sink sink, Log& log);
  void on_connection(Fd connection);
  void on_bytes(std::uint64_t id, Bytes bytes);
  // Returns false when the caller is to be dropped.
  Result<void> on_frame(Caller& caller, const Frame& frame);
  Result<void> on_hello(Caller& caller, std::string_view body, bool is_visitor);
  Result<void> on_failure(const Caller& caller, std::string_view body);
  // Takes the caller into the newest generation, if it has a place there that nobody has taken.
  [[nodiscard]] bool try_welcome(Caller& caller);
  void drop(std::uint64_t id, const std::string& why);
  // Sends a frame to the members that are here.
  void write_to_members(const std::string& frame);
  static std::string notice_frame(const std::string& cause);

  EventLoop& loop_;
  Fd listener_;
  const std::string path_;
  const Sink sink_;
  Log& log_;
  std::unique_ptr<AcceptWatch> accepting_;
  std::optional<Admission> admission_;
  std::string notice_;
  struct Seat {
    GenerationPlace place;
    bool is_taken = false;
  };
  bool is_elastic_ = false;
  std::uint32_t generation_ = 0;
  bool is_joining_ = false;    // no rank of this node was ever a member
  bool is_over_ = false;       // no rank is welcome before the next generation
  bool has_changed_ = false;   // the members are to leave
  bool is_growing_ = false;    // ranks are on their way that the members will take in
  std::map<int, Seat> seats_;  // of the newest generation, by the rank as started; in the first each takes its own
  std::set<int> released_;
  std::map<std::uint64_t, Caller> callers_;
  std::uint64_t next_id_ = 1;
};

}  // namespace hvd::launch
