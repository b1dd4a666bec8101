#include "launcher/agent/relayed_command.h"

#include <signal.h>

#include <utility>

namespace hvd::launch {
namespace {

// Its own end may follow the end of its output by so much.
constexpr Duration kEndTime = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<RelayedCommand>> RelayedCommand::start(EventLoop& loop, const std::vector<std::string>& argv,
                                                              const std::vector<std::string>& environment, Sink sink) {
  SpawnOptions program;
  program.argv = argv;
  program.environment = environment;
  program.death_signal = SIGTERM;  // an agent that it has become cleans up
  Child::Options options;
  options.has_input = true;
  options.is_reaped_elsewhere = true;
  options.end_time = kEndTime;
  std::unique_ptr<RelayedCommand> command(new RelayedCommand());
  Child::Handlers handlers;
  handlers.allowance = [self = command.get()] { return static_cast<std::size_t>(self->credit_); };
  handlers.on_output = [self = command.get(), tell = std::move(sink.on_output)](Child::Stream stream,
                                                                                std::string_view bytes) {
    self->credit_ -= bytes.size();
    tell(stream, bytes);
  };
  handlers.on_over = std::move(sink.on_over);
  HVD_TRY_ASSIGN(command->child_, Child::start(loop, std::move(program), options, std::move(handlers)));
  return command;
}

void RelayedCommand::grant(std::uint32_t bytes) {
  credit_ += bytes;
  child_->resume();
}

}  // namespace hvd::launch
