// launcher/transport/local: the agent on this machine.
#include "launcher/transport/local.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/io/socket.h"
#include "tests/unit/launcher/transport/recording.h"

namespace hvd::launch::local_test {

TEST_CASE("this machine is known by its names and by the addresses of its interfaces") {
  std::array<char, 256> own{};
  REQUIRE(::gethostname(own.data(), own.size() - 1) == 0);
  std::string name(own.data());
  CHECK(is_local_host(name));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  for (const std::string& here : {name, std::string("localhost"), std::string("127.0.0.3"), std::string("::1")}) {
    CAPTURE(here);
    CHECK(is_local_host(here));
  }
  const std::vector<std::string> addresses = interface_ips().value();
  for (const std::string& address : addresses) {
    CAPTURE(address);
    CHECK(is_local_host(address));
  }
  for (const char* elsewhere : {"203.0.113.9", "2001:db8::9", "0.0.0.0", "::", "node-that-is-elsewhere", ""}) {
    CAPTURE(elsewhere);
    CHECK_FALSE(is_local_host(elsewhere));
  }
}

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
