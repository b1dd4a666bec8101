// RshProcess: a ByteProcess on this machine.
//
// It has a session of its own, so that a Ctrl-C at the terminal reaches hvdrun only, which then ends the job in order.
// When hvdrun is killed it gets SIGTERM and its input ends; an agent that it has become cleans up on either.
// Thread: loop only. A handler may destroy the process; destroying it hands what still runs to the StopLadder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/exit_status.h"
#include "launcher/process/stop_ladder.h"
#include "launcher/transport/byte_process.h"
#include "runtime/base/bytes.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class RshProcess final : public ByteProcess {
 public:
  // `open_files`: as SpawnOptions has it. Loop and ladder must outlive this object, which leaves its process to the
  // ladder.
  static Result<std::unique_ptr<RshProcess>> start(EventLoop& loop, StopLadder& ladder,
                                                   const std::vector<std::string>& argv,
                                                   const std::vector<std::string>& environment,
                                                   std::uint64_t open_files, Handlers handlers);
  ~RshProcess() override;
  RshProcess(const RshProcess&) = delete;
  RshProcess& operator=(const RshProcess&) = delete;

  void write(std::string bytes) override;
  void push(const AgentImage& image) override;
  void close_input() override;
  void set_patience(Duration patience) override { patience_ = patience; }

 private:
  struct Source {
    Fd fd;
    WatchId watch = 0;
  };

  RshProcess(EventLoop& loop, StopLadder& ladder, Handlers handlers);
  Result<void> watch(Fd in, Fd out, Fd err);
  void on_readable(Source& source);
  void close(Source& source);
  // Answers whether it took any.
  bool flush();
  void drop_input();
  void on_exit();
  void finish_if_over();
  void tell_over(std::optional<ExitStatus> status);

  // constant after construction
  EventLoop& loop_;
  StopLadder& ladder_;
  const Handlers handlers_;
  // loop only
  Duration patience_ = std::chrono::seconds(2);
  pid_t pid_ = 0;
  Fd pidfd_;
  WatchId pid_watch_ = 0;
  bool has_exited_ = false;  // and is not reaped: its group's number is still its own
  Source out_;
  Source err_;
  Fd in_;
  WatchId in_watch_ = 0;
  std::string_view unowned_;  // before the queue
  std::string queue_;
  std::size_t sent_ = 0;  // of the queue
  bool wants_end_of_input_ = false;
  TimerId end_timer_ = 0;
  std::shared_ptr<bool> alive_;  // false once destroyed: for handlers that destroy us
};

}  // namespace hvd::launch
