// launcher/agent/input_feed, launcher/sessions/input_source and job_input: standard input, from its end here to a
// rank's.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/agent/input_feed.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/input_source.h"
#include "launcher/sessions/job_input.h"
#include "runtime/base/frame.h"

namespace hvd::launch::input_test {
namespace {

std::string some_bytes(std::size_t size) {
  std::mt19937 random(5);
  std::string bytes(size, '\0');
  std::generate(bytes.begin(), bytes.end(), [&random] { return static_cast<char>(random()); });
  return bytes;
}

struct Loop {
  template <typename Condition>
  bool wait(const Condition& condition) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(300));
    while (!condition()) {
      if (deadline.has_passed()) {
        return false;
      }
      REQUIRE(loop->turn(deadline).ok());
    }
    return true;
  }
  // All that has happened so far has been seen.
  void settle() const {
    for (int i = 0; i < 4; ++i) {
      REQUIRE(loop->turn(Deadline::after(std::chrono::milliseconds(0))).ok());
    }
  }
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
};

struct Feed : Loop {
  InputFeed::Sink sink() {
    InputFeed::Sink sink;
    sink.on_taken = [this](std::uint64_t bytes) { taken += bytes; };
    sink.on_over = [this] { ++over; };
    return sink;
  }
  std::uint64_t taken = 0;
  int over = 0;
  InputFeed feed{*loop, kInputWindow, sink()};
};

// What is in a pipe now; `closed` when its end was seen.
std::string read_all(int fd, bool& closed) {
  std::string all;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) {
      closed = got == 0;
      return all;
    }
    all.append(buffer, static_cast<std::size_t>(got));
  }
}

struct Source : Loop {
  InputSource::Sink sink() {
    InputSource::Sink sink;
    sink.allowance = [this] { return allowed; };
    sink.on_bytes = [this](std::string_view bytes) {
      CHECK(bytes.size() <= allowed);
      allowed -= bytes.size();
      all += bytes;
    };
    sink.on_end = [this] { ++ends; };
    return sink;
  }
  std::size_t allowed = 0;
  std::string all;
  int ends = 0;
};

Fd file_with(const std::string& text) {
  std::string path = "/tmp/hvd-input-XXXXXX";
  Fd fd(::mkstemp(path.data()));
  REQUIRE(fd.is_open());
  ::unlink(path.c_str());
  REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  REQUIRE(::lseek(fd.get(), 0, SEEK_SET) == 0);
  return fd;
}

}  // namespace

TEST_CASE("what comes is held until the slowest reader has taken it, and no more than the window is") {
  Feed node;
  const Fd fast = node.feed.add_reader(0).value();
  const Fd slow = node.feed.add_reader(1).value();
  REQUIRE(set_nonblocking(fast.get()).ok());
  REQUIRE(set_nonblocking(slow.get()).ok());
  const std::string bytes = some_bytes(kInputWindow);
  REQUIRE(node.feed.feed(bytes).ok());
  const std::uint64_t in_pipe = node.taken;  // of the slow one
  CHECK(in_pipe < bytes.size());
  CHECK(node.feed.bytes() == bytes.size() - in_pipe);
  CHECK_FALSE(node.feed.feed(std::string(in_pipe + 1, 'x')).ok());
  bool closed = false;
  std::string of_fast;
  CHECK(node.wait([&] { return (of_fast += read_all(fast.get(), closed)).size() == bytes.size(); }));
  CHECK(of_fast == bytes);
  CHECK(node.taken == in_pipe);
  std::string of_slow;
  node.feed.end();
  CHECK(node.wait([&] { return of_slow += read_all(slow.get(), closed), closed; }));
  CHECK(of_slow == bytes);
  CHECK(node.over == 1);
  CHECK(node.feed.bytes() == 0);
}

TEST_CASE("a reader that closes its input is waited for no longer, and the last one ends it") {
  Feed node;
  Fd first = node.feed.add_reader(0).value();
  Fd second = node.feed.add_reader(1).value();
  REQUIRE(node.feed.feed(some_bytes(kInputWindow)).ok());
  const std::uint64_t in_pipe = node.taken;
  first.reset();
  node.settle();
  CHECK(node.over == 0);
  CHECK(node.taken == in_pipe);
  node.feed.drop(1);
  CHECK(node.over == 1);
  CHECK(node.feed.bytes() == 0);
  CHECK(node.feed.feed(some_bytes(1U << 20U)).ok());  // of a window that nobody counts any more
  CHECK(node.feed.bytes() == 0);
  node.feed.end();
  CHECK(node.over == 1);
}

TEST_CASE("that a reader has closed is noticed also while there is nothing to write") {
  Feed node;
  Fd only = node.feed.add_reader(0).value();
  node.settle();
  CHECK(node.over == 0);
  only.reset();
  CHECK(node.wait([&] { return node.over == 1; }));
}

TEST_CASE("a source reads as much as it may, whatever it is") {
  const std::string bytes = some_bytes(300'000);
  for (const std::string kind : {"file", "pipe", "socket"}) {
    CAPTURE(kind);
    Source here;
    Fd from;
    Fd to;
    if (kind == "file") {
      from = file_with(bytes);
    } else if (kind == "pipe") {
      Pipe pipe = make_pipe().value();
      from = std::move(pipe.read_end);
      to = std::move(pipe.write_end);
    } else {
      auto pair = make_socket_pair().value();
      from = std::move(pair.first);
      to = std::move(pair.second);
    }
    const int flags = ::fcntl(from.get(), F_GETFL);
    const Fd shared = duplicate(from.get()).value();
    InputSource source(*here.loop, std::move(from), here.sink());
    if (to.is_open()) {
      REQUIRE(set_nonblocking(to.get()).ok());
    }
    std::size_t written = 0;
    const auto push = [&] {
      if (to.is_open()) {
        const ssize_t sent = ::write(to.get(), bytes.data() + written, bytes.size() - written);
        written += sent > 0 ? static_cast<std::size_t>(sent) : 0;
      }
      if (written == bytes.size()) {
        to.reset();
      }
    };
    push();
    here.settle();
    CHECK(here.all.empty());  // nothing is allowed
    here.allowed = 10;
    source.resume();
    CHECK(here.wait([&] { return here.all.size() == 10; }));
    here.settle();
    CHECK(here.all.size() == 10);
    const Deadline deadline = Deadline::after(std::chrono::seconds(300));
    while (here.ends == 0 && !deadline.has_passed()) {
      push();
      here.allowed = 50'000;
      source.resume();
      here.settle();
    }
    CHECK(here.all == bytes);
    CHECK(here.ends == 1);
    CHECK(::fcntl(shared.get(), F_GETFL) == flags);  // it is not ours alone
    source.resume();
    here.settle();
    CHECK(here.ends == 1);
  }
}

TEST_CASE("a source that cannot be read is at its end") {
  Source here;
  here.allowed = 1;
  InputSource source(*here.loop, Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC)), here.sink());  // as nohup has it
  source.resume();
  CHECK(here.wait([&] { return here.ends == 1; }));
  CHECK(here.all.empty());
}

TEST_CASE("standard input goes to all nodes as fast as the slowest asks for it, and ends once none does") {
  Loop here;
  auto pair = make_socket_pair().value();
  const Fd writer = std::move(pair.second);
  std::map<int, std::string> got;
  std::map<int, int> ends;
  JobInput input(*here.loop, std::move(pair.first), {2, 5},
                 [&](int node, AgentMessage type, const std::shared_ptr<const std::string>& frame) {
                   FrameDecoder decoder(kAgentFrames);
                   decoder.feed(as_bytes(*frame));
                   got[node] += decoder.next().value()->body;
                   ends[node] += type == AgentMessage::kInputEnd ? 1 : 0;
                 });
  const std::string bytes = some_bytes(1000);
  REQUIRE(::write(writer.get(), bytes.data(), bytes.size()) == 1000);
  input.on_credit(2, 600);
  here.settle();
  CHECK(got.empty());
  input.on_credit(5, 100);
  CHECK(here.wait([&] { return got[5].size() == 100; }));
  here.settle();
  CHECK(got[2] == bytes.substr(0, 100));
  input.on_over(5);
  CHECK(here.wait([&] { return got[2].size() == 600; }));
  here.settle();
  CHECK(got[2] == bytes.substr(0, 600));
  CHECK(got[5].size() == 100);
  CHECK(input.count() == 600);
  input.on_over(2);
  input.on_credit(2, 1000);
  here.settle();
  CHECK(got[2].size() == 600);
  CHECK(::send(writer.get(), "x", 1, MSG_NOSIGNAL) < 0);  // its writer is told
  CHECK(ends[2] + ends[5] == 0);
}

TEST_CASE("a rank that is started anew is given none: what there was went to the one before it") {
  StartMessage start;
  start.ranks = {{3, {}, {}, {}, true}, {4, {}, {}, {}, true}};
  start.input_window = kInputWindow;
  const StartMessage again = restart_message(start, 4, 1);
  REQUIRE(again.ranks.size() == 1);
  CHECK(again.ranks.front().rank == 4);
  CHECK_FALSE(again.ranks.front().reads_input);
  CHECK(again.input_window == 0);
}

}  // namespace hvd::launch::input_test
