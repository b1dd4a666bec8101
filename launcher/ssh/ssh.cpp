#include "launcher/ssh/ssh.h"

#include <utility>

#include "launcher/ssh/ssh_shared.h"
#include "launcher/ssh/ssh_stream.h"

namespace hvd::launch {
namespace {

class SshTransport final : public Transport {
 public:
  SshTransport(EventLoop& loop, const SshOptions& options, Log& log)
      : shared_(std::make_shared<SshShared>(loop, options, log)) {}

  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override {
    return std::make_unique<SshStream>(std::make_shared<SshConversation>(shared_, target, sink));
  }
  [[nodiscard]] std::optional<TimePoint> pushed_at() const override { return shared_->system_ssh->pushed_at; }

 private:
  std::shared_ptr<SshShared> shared_;  // shared: streams may outlive their transport
};

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(EventLoop& loop, const SshOptions& options, Log& log) {
  return std::make_unique<SshTransport>(loop, options, log);
}

std::string ssh_version_text() {
  return libssh2_version_text();
}

}  // namespace hvd::launch
