#include "runtime/io/accept_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/process/inherited_signals.h"
#include "runtime/base/open_files.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/socket.h"
#include "tests/support/sanitizers.h"

namespace hvd::accept_watch_test {
namespace {

constexpr Duration kPatience = std::chrono::seconds(300);

// As long as it lives, this process can open nothing more.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const Fd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next.get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

struct Turning {
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();

  template <typename Condition>
  bool wait(const Condition& condition, Duration patience = kPatience) const {
    const Deadline deadline = Deadline::after(patience);
    while (!condition() && !deadline.has_passed()) {
      REQUIRE(loop->turn(deadline).ok());
    }
    return condition();
  }
};

}  // namespace

TEST_CASE("connections that cannot be taken for want of descriptors are told once, and taken when they can") {
  if (test::kHasAddressSanitizer) {
    MESSAGE(
        "SKIPPED the sanitizer needs descriptors too: it looks at an object through a pipe before it trusts its type");
    return;
  }
  const Turning turning;
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  const SocketAddress address = SocketAddress::local_of(listener.get()).value();
  std::vector<Fd> taken;
  std::vector<Error> told;
  const auto watch = AcceptWatch::create(*turning.loop, listener.get(),
                                         {[&taken](Fd fd) { taken.push_back(std::move(fd)); },
                                          [&told](const Error& why) { told.push_back(why); }})
                         .value();
  const Fd one = connect_tcp(address, Deadline::after(kPatience)).value();
  const Fd other = connect_tcp(address, Deadline::after(kPatience)).value();
  {
    const NoMoreFiles none;
    const auto before = turning.loop->wakeups();
    CHECK(!turning.wait([&taken] { return !taken.empty(); }, 5 * AcceptWatch::kRetry));
    CHECK(told.size() == 1);
    CHECK(told.front().code() == Code::kResource);
    CHECK(turning.loop->wakeups() - before < 30);  // it does not spin: two turns for each of five attempts
  }
  CHECK(turning.wait([&taken] { return taken.size() == 2; }));
  CHECK(told.size() == 1);
}

TEST_CASE("a channel of a socket has one descriptor, also while it waits for its peer in both directions") {
  const Turning turning;
  auto ends = make_socket_pair().value();
  const auto files = count_open_files();
  std::string heard;
  std::size_t came = 0;
  const std::string much(4U << 20U, 'x');
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [&heard](Bytes bytes) { heard += as_text(bytes); };
  handlers.on_closed = [](const Error&) {};
  ByteChannel::Handlers others;
  others.on_bytes = [&came](Bytes bytes) { came += bytes.size(); };
  others.on_closed = [](const Error&) {};
  const auto one = ByteChannel::create(*turning.loop, std::move(ends.first), Fd(), std::move(handlers)).value();
  one->write(much);
  CHECK(one->pending() > 0);  // the socket is full, and now waited for
  const auto other = ByteChannel::create(*turning.loop, std::move(ends.second), Fd(), std::move(others)).value();
  other->write("hello");
  CHECK(count_open_files() == files);
  CHECK(turning.wait([&] { return heard == "hello" && came == much.size(); }));
  CHECK(one->pending() == 0);
  const auto before = turning.loop->wakeups();
  turning.wait([] { return false; }, std::chrono::milliseconds(50));
  CHECK(turning.loop->wakeups() - before <= 2);  // nothing is waited for that is there
}

TEST_CASE("signals that were inherited as ignored are left out, but for that of children") {
  struct sigaction before{};
  ::sigaction(SIGUSR2, nullptr, &before);
  ::signal(SIGUSR2, SIG_IGN);
  CHECK(without_ignored({SIGUSR1, SIGUSR2, SIGTERM}) == std::vector<int>{SIGUSR1, SIGTERM});
  ::sigaction(SIGUSR2, &before, nullptr);
  ::signal(SIGCHLD, SIG_IGN);
  restore_child_signal();
  CHECK(without_ignored({SIGCHLD}) == std::vector<int>{SIGCHLD});
}

}  // namespace hvd::accept_watch_test
