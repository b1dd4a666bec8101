// The ssh transport of a build without libssh2: every open is answered with what to install.
#include "launcher/transport/ssh.h"

namespace hvd::launch {
namespace {

class NoSshStream final : public Stream {
 public:
  NoSshStream(EventLoop& loop, const NodeTarget& target, StreamSink& sink) {
    const std::weak_ptr<int> alive = alive_;
    loop.post([alive, &sink, host = target.host] {
      if (!alive.expired()) {
        sink.on_closed(Error(Code::kUnreachable,
                             host + ": this hvdrun was built without libssh2, so it cannot reach nodes over ssh; "
                                    "install libssh2-1-dev and build again"));
      }
    });
  }
  void write(std::string) override {}
  void close_input() override {}

 private:
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // shared: the posted answer asks whether we still exist
};

class NoSshTransport final : public Transport {
 public:
  explicit NoSshTransport(EventLoop& loop) : loop_(loop) {}
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override {
    return std::make_unique<NoSshStream>(loop_, target, sink);
  }

 private:
  EventLoop& loop_;
};

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(EventLoop& loop, const SshOptions&, Log&) {
  return std::make_unique<NoSshTransport>(loop);
}

bool ssh_built() {
  return false;
}
std::string ssh_version_text() {
  return "not built (libssh2 was not found)";
}

}  // namespace hvd::launch
