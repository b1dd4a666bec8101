#include "launcher/engines/driver_pipe.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kLongestLine = 4096;  // of the driver; the rest of a longer line is dropped
constexpr std::string_view kOver = "over ";

}  // namespace

Result<std::unique_ptr<DriverPipe>> DriverPipe::open(EventLoop& loop, Fd fd,
                                                     std::function<void(const Error&)> on_over) {
  std::unique_ptr<DriverPipe> pipe(new DriverPipe(loop, std::move(fd), std::move(on_over)));
  HVD_TRY(set_nonblocking(pipe->fd_.get()));
  HVD_TRY_ASSIGN(pipe->watch_,
                 loop.watch(pipe->fd_.get(), EPOLLIN, [owner = pipe.get()](std::uint32_t) { owner->on_readable(); }));
  return pipe;
}

DriverPipe::DriverPipe(EventLoop& loop, Fd fd, std::function<void(const Error&)> on_over)
    : loop_(loop), fd_(std::move(fd)), on_over_(std::move(on_over)) {}

DriverPipe::~DriverPipe() {
  loop_.unwatch(watch_);
}

Result<void> DriverPipe::ask_for_calls(const CallKey& key, int count, const CallPlace& place) {
  std::string line = "call " + call_key_text(key) + " " + std::to_string(count) + " " + place.stack;
  for (const std::string& address : place.addresses) {
    line += " " + address;
  }
  line += "\n";
  // The line is far smaller than an empty socket buffer, so this does not block the loop.
  return send_all(fd_.get(), as_bytes(line), Deadline::after(std::chrono::seconds(5)));
}

void DriverPipe::on_readable() {
  std::array<char, 512> buffer{};
  const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    return end(Error(Code::kLostPeer, "the program that started hvdrun is gone"));
  }
  line_.append(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t newline = line_.find('\n');
  if (newline == std::string::npos && line_.size() < kLongestLine) {
    return;
  }
  const std::string line = line_.substr(0, newline);
  const bool is_over = line.starts_with(kOver);
  end(is_over ? Error(Code::kSystem, line.substr(kOver.size()))
              : Error(Code::kProtocol, "the program that started hvdrun sent a line that means nothing"));
}

void DriverPipe::end(const Error& why) {
  loop_.unwatch(std::exchange(watch_, 0));
  if (const auto on_over = std::exchange(on_over_, nullptr)) {
    on_over(why);
  }
}

}  // namespace hvd::launch
