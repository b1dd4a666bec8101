// LiveServer answers questions about a running job on its unix socket, to the job's own user and to nobody else.
//
// The folder keeps other users out, and the credentials of each caller are checked as well. A caller that is slow, or
// that sends nonsense, is dropped; nothing it does can harm the job. Thread: loop only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/live/live_folder.h"
#include "launcher/live/live_messages.h"
#include "runtime/base/log.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class LiveServer {
 public:
  using CallerId = std::uint64_t;
  // Answers at once or later, by send() and over() or refuse(). An error refuses the question.
  using Handler = std::function<Result<void>(CallerId caller, std::string_view body)>;

  // Listens in the folder. kAskJob is answered with `job`.
  static Result<std::unique_ptr<LiveServer>> listen(EventLoop& loop, const LiveFolder& folder, LiveJob job, Log& log);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  // Sets what answers questions of this type.
  void on_question(LiveMessage question, Handler handler) { handlers_[question] = std::move(handler); }
  // True while the caller is there to hear an answer.
  [[nodiscard]] bool has(CallerId caller) const { return callers_.contains(caller); }
  // Sends a part of the answer. Does nothing when the caller has gone. One that does not read is dropped.
  void send(CallerId caller, LiveMessage type, std::string_view body);
  // The answer is complete.
  void over(CallerId caller);
  void refuse(CallerId caller, const std::string& why);

 private:
  struct Caller {
    std::unique_ptr<ByteChannel> channel;
    FrameDecoder decoder{kLiveFrames};
    TimerId timer = 0;  // limits its question, and afterwards its leaving
    bool has_asked = false;
  };

  LiveServer(EventLoop& loop, Fd listener, std::string path, LiveJob job, Log& log);
  void on_connection(Fd connection);
  void on_bytes(CallerId id, Bytes bytes);
  void drop(CallerId id);

  EventLoop& loop_;
  Fd listener_;
  const std::string path_;
  const LiveJob job_;
  Log& log_;
  std::unique_ptr<AcceptWatch> accepting_;
  std::map<LiveMessage, Handler> handlers_;
  std::map<CallerId, Caller> callers_;
  CallerId next_id_ = 1;
  Scope scope_;  // of what is posted
};

}  // namespace hvd::launch
