// launcher/logs/log_mux: which lines of a rank's standard error the user has just seen.
#include "launcher/logs/log_mux.h"

#include <fcntl.h>

#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "runtime/base/fd.h"
#include "runtime/io/event_loop.h"
#include "tests/support/still_clock.h"

namespace hvd::launch::log_mux_test {
namespace {

// A mux of four ranks on one node, whose console takes all and keeps nothing.
struct Console {
  explicit Console(LogMuxOptions options = {}) {
    options.console = {out.get(), err.get()};
    logs.emplace(*loop, 4, 1, std::move(options), LogMux::Sink{[](int, std::uint64_t) {}, [](const Error&) {}, {}});
  }
  void print(int rank, const std::string& text, bool is_error = true) { logs->feed(0, rank, is_error, text); }
  [[nodiscard]] std::size_t just_shown(int rank) const { return logs->last_errors(rank).just_shown; }

  test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  // Two descriptors of one place, as a terminal has them.
  Fd out{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  Fd err{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  std::optional<LogMux> logs;
};

}  // namespace

TEST_CASE("the last lines of a rank are just shown as long as few others have come since") {
  Console console;
  CHECK(console.just_shown(1) == 0);
  console.print(1, "Traceback\n  File\nValueError\n");
  CHECK(console.logs->last_errors(1).lines.size() == 3);
  CHECK(console.just_shown(1) == 3);
  console.logs->say("hvdrun: rank 1 failed");
  console.print(0, "a\nb\nc\nd\n", false);
  CHECK(console.just_shown(1) == 3);
  console.print(2, "e\nf\n");
  CHECK(console.just_shown(1) == 0);
}

TEST_CASE("lines of others among those of a rank count too, and what was shown long ago does not") {
  Console console;
  console.print(1, "a warning\n");
  for (int i = 0; i < 20; ++i) {
    console.print(0, "progress\n", false);
  }
  console.print(1, "Traceback\n");
  console.print(3, "mine too\n");
  console.print(1, "ValueError\n");
  CHECK(console.logs->last_errors(1).lines.size() == 3);
  CHECK(console.just_shown(1) == 2);
}

TEST_CASE("what goes to files alone, or waits for equal lines of other ranks, was not just shown") {
  LogMuxOptions hidden;
  hidden.shows_ranks = false;
  Console files(std::move(hidden));
  files.print(1, "ValueError\n");
  CHECK(files.just_shown(1) == 0);
  LogMuxOptions gathered;
  gathered.gather = true;
  Console equal(std::move(gathered));
  equal.print(1, "ValueError\n");
  CHECK(equal.just_shown(1) == 0);
}

TEST_CASE("of a rank that is not to be shown the last lines are known, and were not just shown") {
  LogMuxOptions options;
  options.is_rank_shown = [](int rank) { return rank != 1; };
  Console console(std::move(options));
  console.print(1, "ValueError\n");
  console.print(0, "ValueError\n");
  CHECK(console.logs->last_errors(1).lines.size() == 1);
  CHECK(console.just_shown(1) == 0);
  CHECK(console.just_shown(0) == 1);
}

TEST_CASE("a secret in an overlong line is masked, wherever that is cut") {
  LogMuxOptions options;
  options.hidden = {"s3cr3t-word"};
  Console console(std::move(options));
  console.print(1, std::string(LineSplitter::kMaxLineBytes, 'x') + "s3cr3t");
  console.print(1, "-word, and more\n");
  console.print(1, std::string(LineSplitter::kMaxLineBytes, 'x') + "s3cr3t-word");
  console.print(1, ", and more\n");
  const auto lines = console.logs->last_errors(1).lines;
  REQUIRE(lines.size() == 4);
  CHECK(lines[1] == "***, and more");
  CHECK(lines[3].ends_with(", and more"));
  CHECK(lines[3].find("s3cr3t") == std::string::npos);
}

TEST_CASE("no line waits for an equal one of a rank that is not to be shown") {
  LogMuxOptions options;
  options.gather = true;
  options.is_rank_shown = [](int rank) { return rank == 1; };
  Console console(std::move(options));
  console.print(1, "ValueError\n");
  CHECK(console.just_shown(1) == 1);
  REQUIRE(console.logs->add_node(1).ok());
  console.print(4, "ValueError\n");
  console.print(1, "KeyError\n");
  CHECK(console.just_shown(4) == 0);
  CHECK(console.just_shown(1) == 2);
}

}  // namespace hvd::launch::log_mux_test
