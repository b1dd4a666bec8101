// launcher/process/pipe_reader: how much of a pipe one turn takes, and what a handler may do meanwhile.
#include "launcher/process/pipe_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include <doctest/doctest.h>

namespace hvd::launch::pipe_reader_test {
namespace {

constexpr std::size_t kFull = 1U << 20U;

// A pipe that holds more than one turn takes, and its reader.
struct Ends {
  Ends() {
    Pipe pipe = make_pipe().value();
    REQUIRE(::fcntl(pipe.write_end.get(), F_SETPIPE_SZ, static_cast<int>(kFull)) >= static_cast<int>(kFull));
    REQUIRE(set_nonblocking(pipe.read_end.get()).ok());
    REQUIRE(set_nonblocking(pipe.write_end.get()).ok());
    theirs = std::move(pipe.write_end);
    PipeReader::Handlers handlers;
    handlers.allowance = [this] { return allowance; };
    handlers.on_bytes = [this](std::string_view bytes) {
      taken += bytes.size();
      allowance -= bytes.size();
      if (when_bytes) {
        when_bytes();
      }
    };
    handlers.on_end = [this] { ++ends; };
    reader = std::make_unique<PipeReader>(*loop, std::move(handlers));
    REQUIRE(reader->open(std::move(pipe.read_end)).ok());
  }
  void fill() const {
    const std::string much(1U << 16U, 'x');
    while (::write(theirs.get(), much.data(), much.size()) > 0) {
    }
  }
  void turn() const { REQUIRE(loop->turn(Deadline::after(Duration::zero())).ok()); }

  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  Fd theirs;
  std::size_t allowance = 1U << 30U;
  std::size_t taken = 0;
  int ends = 0;
  std::function<void()> when_bytes;
  std::unique_ptr<PipeReader> reader;
};

TEST_CASE("a writer that never stops gets one share of a turn, and its rest is what stood in the pipe") {
  Ends ends;
  ends.when_bytes = [&] { ends.fill(); };
  ends.fill();
  ends.turn();
  CHECK(ends.taken > 0);
  CHECK(ends.taken < kFull);
  const std::size_t before = ends.taken;
  ends.reader->read_rest();
  CHECK(ends.taken == before + kFull);
  CHECK(ends.ends == 0);
}

TEST_CASE("the end of a pipe is told when its owner has taken all of it, and once") {
  Ends ends;
  ends.allowance = 0;
  ends.fill();
  ends.theirs.reset();
  ends.turn();
  ends.reader->read_rest();
  CHECK(ends.taken == 0);
  CHECK(ends.reader->is_open());
  CHECK(!ends.reader->is_reading());
  ends.allowance = kFull;
  ends.reader->resume();
  ends.reader->read_rest();
  CHECK(ends.taken == kFull);
  CHECK(ends.ends == 0);
  ends.allowance = 1;
  ends.reader->resume();
  ends.turn();
  CHECK(ends.ends == 1);
  CHECK(!ends.reader->is_open());
  ends.reader->close();
  CHECK(ends.ends == 1);
}

TEST_CASE("a handler may close, drop or destroy the reader, and hears of no more bytes") {
  Ends ends;
  std::size_t first = 0;
  ends.when_bytes = [&] {
    CHECK(std::exchange(first, ends.taken) == 0);
    ends.reader->close();
  };
  ends.fill();
  ends.turn();
  CHECK(ends.taken == first);
  CHECK(ends.ends == 1);

  Ends dropped;
  dropped.when_bytes = [&] { dropped.reader->drop(); };
  dropped.fill();
  dropped.turn();
  CHECK(dropped.taken == first);
  CHECK(dropped.ends == 0);

  Ends destroyed;
  destroyed.when_bytes = [&] { destroyed.reader.reset(); };
  destroyed.fill();
  destroyed.turn();
  CHECK(destroyed.taken == first);
  CHECK(destroyed.ends == 0);
}

}  // namespace

}  // namespace hvd::launch::pipe_reader_test
