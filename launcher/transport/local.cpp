#include "launcher/transport/local.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <strings.h>

#include "launcher/process/child.h"
#include "launcher/process/own_process.h"
#include "launcher/transport/own_names.h"
#include "launcher/transport/remote_errors.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/scope.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// The end of a stream waits so long for the agent's processes to be gone, so that none is seen after hvdrun has ended.
constexpr auto kReapTime = std::chrono::seconds(1);

// The started process is the guardian. If it is killed, its agent goes on until the ranks have ended, and may print.
constexpr auto kErrorsTime = std::chrono::minutes(1);

// The kernel binds a socket to no address but its own, unless it is told otherwise (ip_nonlocal_bind). So the list of
// all addresses, which costs more, is made for few of many hosts.
bool is_own_address(const std::string& name) {
  const auto address = SocketAddress::make(name, 0);
  if (!address.ok()) {
    return false;  // it is a name
  }
  const Fd socket(::socket(address.value().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || ::bind(socket.get(), address.value().raw(), address.value().raw_size()) != 0) {
    return false;
  }
  const auto own = interface_ips();
  return own.ok() && std::find(own.value().begin(), own.value().end(), address.value().ip()) != own.value().end();
}

bool is_loopback(const std::string& address) {
  return address == "::1" || address.rfind("127.", 0) == 0;
}

bool is_same_name(const std::string& a, const std::string& b) {
  return ::strcasecmp(a.c_str(), b.c_str()) == 0;
}

class LocalStream final : public Stream {
 public:
  LocalStream(EventLoop& loop, StreamSink& sink) : loop_(loop), sink_(sink), scope_(loop) {}

  ~LocalStream() override {
    channel_.reset();
    if (agent_) {
      agent_->await_exit(Deadline::after(kReapTime));
    }
  }
  LocalStream(const LocalStream&) = delete;
  LocalStream& operator=(const LocalStream&) = delete;

  // Starts the agent. Success and failure are both reported from the loop.
  void open(const LocalOptions& options) {
    auto started = start(options);
    scope_.post([this, started] {
      if (started.ok()) {
        tell_open();
      } else {
        sink_.on_closed(started.error());
      }
    });
  }

  void write(std::string bytes) override {
    if (channel_) {
      channel_->write(bytes);
    }
  }

  void close_input() override {
    if (channel_) {
      channel_->close_output();
    }
  }

 private:
  Result<void> start(const LocalOptions& options) {
    HVD_TRY_ASSIGN(auto ends, make_socket_pair());
    SpawnOptions agent;
    agent.argv = {options.agent_path, "serve"};
    agent.environment = options.environment;
    agent.open_files = options.open_files;
    agent.stdin_fd = ends.second.get();
    agent.stdout_fd = ends.second.get();
    agent.dies_with_parent = false;  // it outlives us to clean up
    Child::Options pipes;
    pipes.has_output = false;
    pipes.has_errors = options.errors_to != nullptr;
    pipes.errors_drain = kErrorsTime;
    Child::Handlers output;
    if (pipes.has_errors) {
      errors_.emplace(*options.errors_to, "the agent on this machine", LogLevel::kWarning);
      output.on_output = [this](Child::Stream, std::string_view text) { errors_->feed(text); };
    }
    auto started = Child::start(loop_, std::move(agent), pipes, std::move(output));
    if (!started.ok()) {
      return started.error().with_context("cannot start the agent on this machine");
    }
    agent_ = std::move(started).value();
    ByteChannel::Handlers handlers;
    handlers.on_bytes = [this](Bytes bytes) {
      tell_open();
      sink_.on_bytes(bytes);
    };
    handlers.on_closed = [this](const Error&) {
      tell_open();
      scope_.post([this] { channel_.reset(); });  // the stream may live for as long as the job
      sink_.on_closed(Error(kAgentEnded, "the agent on this machine has ended"));
    };
    HVD_TRY_ASSIGN(channel_, ByteChannel::create(loop_, std::move(ends.first), Fd(), std::move(handlers)));
    return {};
  }

  // Reports on_open once, and first, also where the agent was quicker than the task that open() has posted: until this
  // is known, a node that is ready is taken for one on another machine.
  void tell_open() {
    if (!std::exchange(is_open_told_, true)) {
      Opened opened;
      opened.is_local = true;
      sink_.on_open(opened);
    }
  }

  EventLoop& loop_;
  StreamSink& sink_;
  std::unique_ptr<ByteChannel> channel_;
  bool is_open_told_ = false;
  std::optional<RemoteErrors> errors_;
  std::unique_ptr<Child> agent_;
  Scope scope_;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(EventLoop& loop, LocalOptions options) : loop_(loop), options_(std::move(options)) {}

  std::unique_ptr<Stream> open(const NodeTarget&, StreamSink& sink) override {
    auto stream = std::make_unique<LocalStream>(loop_, sink);
    stream->open(options_);
    return stream;
  }

 private:
  EventLoop& loop_;
  const LocalOptions options_;
};

}  // namespace

std::unique_ptr<Transport> make_local_transport(EventLoop& loop, LocalOptions options) {
  return std::make_unique<LocalTransport>(loop, std::move(options));
}

bool is_local_host(const std::string& name) {
  if (name == "localhost" || is_loopback(name)) {
    return true;
  }
  const std::string full = own_host_name();
  if (is_same_name(name, full) || is_same_name(name, full.substr(0, full.find('.'))) || is_own_address(name)) {
    return true;
  }
  static const OwnNames others(
      full, [](const std::string& address) { return is_loopback(address) || is_own_address(address); });
  return others.has(name);
}

}  // namespace hvd::launch
