// RankHub is the agent's unix socket, where this node's ranks meet the job (runtime/rendezvous/store_wire.h). It checks
// who calls, hands out the job secret, and relays exchanges and notices.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/frame.h"
#include "runtime/base/log.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/failure_news.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

class RankHub {
 public:
  struct Sink {
    std::function<void(int rank)> on_joined;
    std::function<void(int rank, const std::string& key, const std::string& value)> on_exchange;
    std::function<void(int rank, const FailureNews& news)> on_failure;
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
  // Sends the values to all ranks that asked for `key`.
  void send_exchanged(const std::string& key, const std::vector<std::string>& values);
  // Tells all ranks that the job is over, also those that connect later.
  void send_notice(const std::string& cause);
  // Tells the connected ranks why they have to connect again. What they asked for is forgotten.
  void turn_away(const std::string& cause);

 private:
  struct Caller {
    std::unique_ptr<ByteChannel> channel;
    FrameDecoder decoder;
    int rank = -1;  // -1: has not said hello
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
  void drop(std::uint64_t id, const std::string& why);
  static std::string notice_frame(const std::string& cause);

  EventLoop& loop_;
  Fd listener_;
  const std::string path_;
  const Sink sink_;
  Log& log_;
  std::unique_ptr<AcceptWatch> accepting_;
  std::optional<Admission> admission_;
  std::string notice_;
  std::map<std::uint64_t, Caller> callers_;
  std::uint64_t next_id_ = 1;
};

}  // namespace hvd::launch
