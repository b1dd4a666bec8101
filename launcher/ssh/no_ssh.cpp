// This is the ssh transport of a build without libssh2: the user's own ssh opens every host.
#include <utility>

#include "launcher/command/system_ssh.h"
#include "launcher/ssh/ssh.h"
#include "launcher/transport/refused_stream.h"

namespace hvd::launch {
namespace {

class SystemSshTransport final : public Transport {
 public:
  SystemSshTransport(EventLoop& loop, const SshOptions& options, Log& log)
      : options_(options), shared_(std::make_shared<RshShared>(loop, system_ssh_settings(options), log)) {}

  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override {
    const SshRequest request{target.host, target.user, target.port != 0 ? target.port : options_.port,
                             options_.identity_file, options_.config_file};
    if (const Result<void> checked = check_ssh_request(request); !checked.ok()) {
      return std::make_unique<RefusedStream>(shared_->loop, checked.error().with_context(target.host), sink);
    }
    RshCommand command = system_ssh_command(request, options_.connect_timeout);
    command.afterword = "; this hvdrun was built without libssh2, so it needs the system's ssh";
    return std::make_unique<RshStream>(std::make_shared<RshConversation>(shared_, std::move(command), sink));
  }
  [[nodiscard]] std::optional<TimePoint> pushed_at() const override { return shared_->pushed_at; }

 private:
  const SshOptions options_;
  const std::shared_ptr<RshShared> shared_;  // shared: streams may outlive their transport
};

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(EventLoop& loop, const SshOptions& options, Log& log) {
  return std::make_unique<SystemSshTransport>(loop, options, log);
}

std::string ssh_version_text() {
  return "the system's ssh program; built without libssh2";
}

}  // namespace hvd::launch
