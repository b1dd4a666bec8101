#include "launcher/command/rsh.h"

#include <utility>

#include "launcher/process/spawn.h"
#include "launcher/transport/refused_stream.h"
#include "launcher/transport/ssh_config.h"

namespace hvd::launch {
namespace {

constexpr int kSshPort = 22;

class RshTransport final : public Transport {
 public:
  RshTransport(EventLoop& loop, RshTemplate command, RshOptions options, Log& log)
      : shared_(std::make_shared<RshShared>(loop, std::move(options.settings), log)),
        command_(std::move(command)),
        port_(options.port) {}

  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override {
    auto command = rsh_command(command_, target, port_);
    if (!command.ok()) {
      return std::make_unique<RefusedStream>(shared_->loop, command.error(), sink);
    }
    return std::make_unique<RshStream>(std::make_shared<RshConversation>(shared_, std::move(command).value(), sink));
  }
  [[nodiscard]] std::optional<TimePoint> pushed_at() const override { return shared_->pushed_at; }

 private:
  const std::shared_ptr<RshShared> shared_;  // shared: streams may outlive their transport
  const RshTemplate command_;
  const int port_;
};

}  // namespace

Result<RshCommand> rsh_command(const RshTemplate& words, const NodeTarget& target, int port) {
  RshCommand command;
  HVD_TRY_ASSIGN(command.argv, words.words(target, {LocalUser::current().name, port != 0 ? port : kSshPort}));
  command.host = target.host;
  command.label = "rsh: " + shown_words(command.argv);
  command.lookup = target.host;
  return command;
}

std::unique_ptr<Transport> make_rsh_transport(EventLoop& loop, RshTemplate command, RshOptions options, Log& log) {
  return std::make_unique<RshTransport>(loop, std::move(command), std::move(options), log);
}

Result<void> check_rsh_program(const RshTemplate& command, const std::vector<std::string>& environment) {
  if (command.program().find('{') != std::string::npos) {
    return {};  // each host has its own
  }
  const auto found = find_program(command.program(), value_in(environment, "PATH"), "");
  return found.ok() ? Result<void>() : Result<void>(found.error().with_context("--rsh"));
}

}  // namespace hvd::launch
