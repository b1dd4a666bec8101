// RshProcess is a ByteProcess on this machine.
//
// It has a session of its own, so that a Ctrl-C at the terminal reaches only hvdrun, which then ends the job in order.
// When hvdrun is killed, it gets SIGTERM and its input ends; if it has become an agent, that cleans up on either.
// Thread: loop only. A handler may destroy the process; destroying it hands what still runs to the StopLadder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/child.h"
#include "launcher/process/stop_ladder.h"
#include "launcher/transport/byte_process.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class RshProcess final : public ByteProcess {
 public:
  // `open_files` has its meaning in SpawnOptions. Loop and ladder must outlive this object, which leaves its process to
  // the ladder.
  static Result<std::unique_ptr<ByteProcess>> start(EventLoop& loop, StopLadder& ladder,
                                                    const std::vector<std::string>& argv,
                                                    const std::vector<std::string>& environment,
                                                    std::uint64_t open_files, Handlers handlers);
  ~RshProcess() override { child_->leave_to(ladder_, patience_); }
  RshProcess(const RshProcess&) = delete;
  RshProcess& operator=(const RshProcess&) = delete;

  void write(std::string bytes) override { child_->write(std::move(bytes)); }
  void push(const AgentImage& image) override { child_->push(image.bytes); }
  void close_input() override { child_->close_input(); }
  void set_patience(Duration patience) override;

 private:
  RshProcess(StopLadder& ladder, std::unique_ptr<Child> child);

  StopLadder& ladder_;
  Duration patience_;
  const std::unique_ptr<Child> child_;
};

}  // namespace hvd::launch
