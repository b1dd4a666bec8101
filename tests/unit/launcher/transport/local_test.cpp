// launcher/transport/local: the agent on this machine.
#include "launcher/transport/local.h"

#include <sys/wait.h>

#include "tests/unit/launcher/transport/recording.h"

namespace hvd::launch::local_test {

TEST_CASE("how the node was reached is told before the first byte, however quick the agent is") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  LocalOptions options;
  options.agent_path = "/bin/echo";
  const auto transport = make_local_transport(*loop, options);
  test::RecordingSink sink;
  std::vector<std::string> told;
  sink.when_open = [&] { told.emplace_back(sink.opened.is_local ? "open, here" : "open"); };
  sink.when_bytes = [&](Bytes bytes) { told.emplace_back(as_text(bytes)); };
  sink.when_closed = [&] { told.emplace_back("closed"); };
  const auto stream = transport->open(NodeTarget{"localhost", "", 0, 0}, sink);
  siginfo_t ended{};  // the agent, of whom the loop has not heard yet
  REQUIRE(::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0);
  const Deadline deadline = Deadline::after(std::chrono::minutes(5));
  while (!sink.closed && !deadline.has_passed()) {
    REQUIRE(loop->turn(deadline).ok());
  }
  CHECK(told == std::vector<std::string>{"open, here", "serve\n", "closed"});
}

}  // namespace hvd::launch::local_test
