#include "launcher/command/rsh_process.h"

#include <signal.h>

#include <utility>

namespace hvd::launch {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);
// A process that it left may hold its standard error (ssh's ControlPersist does); it is not waited for any longer.
constexpr Duration kDrainTime = std::chrono::seconds(1);
// Its own end may follow the end of its output by so much.
constexpr Duration kEndTime = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<ByteProcess>> RshProcess::start(EventLoop& loop, StopLadder& ladder,
                                                       const std::vector<std::string>& argv,
                                                       const std::vector<std::string>& environment,
                                                       std::uint64_t open_files, Handlers handlers) {
  SpawnOptions program;
  program.argv = argv;
  program.environment = environment;
  program.open_files = open_files;
  program.death_signal = SIGTERM;
  Child::Options options;
  options.has_input = true;
  options.output_drain = kPatience;
  options.errors_drain = kDrainTime;
  options.end_time = kEndTime;
  Child::Handlers own;
  own.on_output = [on_output = std::move(handlers.on_output), on_errors = std::move(handlers.on_errors)](
                      Child::Stream stream, std::string_view text) {
    if (stream == Child::Stream::kOutput) {
      on_output(as_bytes(text));
    } else {
      on_errors(text);
    }
  };
  own.on_taken = std::move(handlers.on_taken);
  own.on_over = std::move(handlers.on_over);
  HVD_TRY_ASSIGN(auto child, Child::start(loop, std::move(program), options, std::move(own)));
  return std::unique_ptr<ByteProcess>(new RshProcess(ladder, std::move(child)));
}

RshProcess::RshProcess(StopLadder& ladder, std::unique_ptr<Child> child)
    : ladder_(ladder), patience_(kPatience), child_(std::move(child)) {}

// Its output may belong to a process that must finish its work: an agent whose wrapper or guardian was killed.
void RshProcess::set_patience(Duration patience) {
  patience_ = patience;
  child_->set_drains(patience, kDrainTime);
}

}  // namespace hvd::launch
