// StatusAnswers tells commands that ask a running job (hvdrun top) how it is: its picture, at once when there is a
// sample and then every second, for as long as the caller listens. While nobody asks, no node is sampled for it.
//
// Thread: loop only.
#pragma once

#include <set>

#include "launcher/live/live_server.h"
#include "launcher/samples/job_watch.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class StatusAnswers {
 public:
  // Answers the callers of `server`. All of them must outlive this object.
  StatusAnswers(EventLoop& loop, JobWatch& watch, LiveServer& server);
  ~StatusAnswers();
  StatusAnswers(const StatusAnswers&) = delete;
  StatusAnswers& operator=(const StatusAnswers&) = delete;

 private:
  void begin(LiveServer::CallerId caller);
  void tell_all();

  EventLoop& loop_;
  JobWatch& watch_;
  LiveServer& server_;
  std::set<LiveServer::CallerId> callers_;
  TimerId timer_ = 0;  // 0: nobody listens
};

}  // namespace hvd::launch
