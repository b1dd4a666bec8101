// DriverPipe is the socket between hvdrun and the program that started it (the driver), for jobs whose agents are
// started by the tasks of an engine (Spark). It carries text lines, so that a program in any language can hold the
// other end:
//
//   hvdrun -> driver   "call KEY COUNT STACK ADDRESS..."   start COUNT tasks, whose agents connect with this key
//   driver -> hvdrun   "over TEXT"                         the tasks have ended or cannot start; TEXT says why
//                      end of file                         the driver is gone
//
// The driver's end keeps the job alive: when the driver is killed, the kernel closes it and the job is stopped.
//
// Thread: loop only. The EventLoop outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/wire/engine_call.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class DriverPipe {
 public:
  // `on_over` is called once, with an error for the user.
  static Result<std::unique_ptr<DriverPipe>> open(EventLoop& loop, Fd fd, std::function<void(const Error&)> on_over);
  ~DriverPipe();
  DriverPipe(const DriverPipe&) = delete;
  DriverPipe& operator=(const DriverPipe&) = delete;

  // Asks the driver to start `count` tasks. Only this line carries the key out of the process; no log gets it.
  Result<void> ask_for_calls(const CallKey& key, int count, const CallPlace& place);

 private:
  DriverPipe(EventLoop& loop, Fd fd, std::function<void(const Error&)> on_over);
  void on_readable();
  void end(const Error& why);

  EventLoop& loop_;
  Fd fd_;
  std::function<void(const Error&)> on_over_;  // null: already called
  WatchId watch_ = 0;
  std::string line_;
};

}  // namespace hvd::launch
