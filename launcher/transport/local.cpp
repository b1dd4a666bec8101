#include "launcher/transport/local.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

#include "launcher/process/spawn.h"
#include "launcher/transport/remote_errors.h"
#include "runtime/base/byte_channel.h"

namespace hvd::launch {
namespace {

// How long the end of a stream waits for the agent's processes to be gone, so that none is seen after hvdrun has ended.
constexpr auto kReapTime = std::chrono::seconds(1);

class LocalStream final : public Stream {
 public:
  LocalStream(EventLoop& loop, StreamSink& sink) : loop_(loop), sink_(sink), alive_(std::make_shared<bool>(true)) {}

  ~LocalStream() override {
    *alive_ = false;
    channel_.reset();
    reap();
    read_errors();
    close_errors();
  }
  LocalStream(const LocalStream&) = delete;
  LocalStream& operator=(const LocalStream&) = delete;

  // Either outcome is told from the loop.
  void open(const LocalOptions& options) {
    auto started = start(options);
    loop_.post([this, alive = alive_, started] {
      if (!*alive) {
        return;
      }
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
    Pipe errors;
    if (options.errors_to != nullptr) {
      HVD_TRY_ASSIGN(errors, make_pipe());
      agent.stderr_fd = errors.write_end.get();
      HVD_TRY(watch_errors(std::move(errors.read_end), *options.errors_to));
    }
    auto pid = spawn(agent);
    if (!pid.ok()) {
      return pid.error().with_context("cannot start the agent on this machine");
    }
    pid_ = pid.value();
    ByteChannel::Handlers handlers;
    handlers.on_bytes = [this](Bytes bytes) {
      tell_open();
      sink_.on_bytes(bytes);
    };
    handlers.on_closed = [this](const Error&) {
      tell_open();
      sink_.on_closed(Error(kAgentEnded, "the agent on this machine has ended"));
    };
    HVD_TRY_ASSIGN(channel_, ByteChannel::create(loop_, std::move(ends.first), Fd(), std::move(handlers)));
    return {};
  }

  // Once, and before all else, also where the agent was quicker than what open() has posted: a node that is ready is
  // taken for one on another machine until this is known.
  void tell_open() {
    if (!std::exchange(is_open_told_, true)) {
      Opened opened;
      opened.is_local = true;
      sink_.on_open(opened);
    }
  }

  Result<void> watch_errors(Fd read_end, Log& log) {
    HVD_TRY(set_nonblocking(read_end.get()));
    errors_.emplace(log, "the agent on this machine", LogLevel::kWarning);
    errors_fd_ = std::move(read_end);
    HVD_TRY_ASSIGN(errors_watch_, loop_.watch(errors_fd_.get(), EPOLLIN, [this](std::uint32_t) { read_errors(); }));
    return {};
  }

  void read_errors() {
    std::array<char, 4096> buffer{};
    while (errors_fd_.is_open()) {
      const ssize_t got = ::read(errors_fd_.get(), buffer.data(), buffer.size());
      if (got > 0) {
        errors_->feed({buffer.data(), static_cast<std::size_t>(got)});
      } else if (got == 0 || errno != EINTR) {
        if (got == 0 || errno != EAGAIN) {
          close_errors();
        }
        return;
      }
    }
  }

  void close_errors() {
    loop_.unwatch(errors_watch_);
    errors_watch_ = 0;
    errors_fd_.reset();
  }

  void reap() const {
    if (pid_ <= 0) {
      return;
    }
    const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    pollfd p{pidfd.get(), POLLIN, 0};
    const Deadline deadline = Deadline::after(kReapTime);
    while (pidfd.is_open() && ::poll(&p, 1, deadline.poll_ms()) < 0) {
    }
    ::waitpid(pid_, nullptr, WNOHANG);
  }

  EventLoop& loop_;
  StreamSink& sink_;
  std::unique_ptr<ByteChannel> channel_;
  pid_t pid_ = 0;
  bool is_open_told_ = false;
  std::optional<RemoteErrors> errors_;
  Fd errors_fd_;
  WatchId errors_watch_ = 0;
  std::shared_ptr<bool> alive_;
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
  if (name == "localhost" || name == "::1" || name.rfind("127.", 0) == 0) {
    return true;
  }
  std::array<char, 256> own{};
  if (::gethostname(own.data(), own.size() - 1) != 0) {
    return false;
  }
  const std::string full(own.data());
  return name == full || name == full.substr(0, full.find('.'));
}

}  // namespace hvd::launch
