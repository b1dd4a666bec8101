// What is refused, or said in fewer lines, before a number from outside has grown into memory or onto the screen.
#include <string>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/job/hostfile.h"
#include "launcher/job/text_file.h"
#include "launcher/placement/placement.h"
#include "launcher/state/unopened_hosts.h"
#include "launcher/transport/rank_limits.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch::limits_test {
namespace {

std::string refusal(const std::string& hosts, int size, const MachineLimits& here = {}) {
  const auto checked = check_rank_count(parse_host_list(hosts).value(), size, here);
  return checked.ok() ? "" : checked.error().message();
}

}  // namespace

TEST_CASE("more ranks than the node can have are refused by the limit's name") {
  const MachineLimits here{32768, "kernel.pid_max", std::uint64_t{8} << 30U};
  CHECK(refusal("localhost:4", 4, here).empty());
  CHECK(refusal("localhost:40000", 40000, here).find("kernel.pid_max") != std::string::npos);
  CHECK(refusal("localhost:1000000", 1000000, here).find("at most 65536 can be started on a host") !=
        std::string::npos);
  CHECK(refusal("localhost:60000", 60000, {0, "", std::uint64_t{1} << 30U}).find("of memory") != std::string::npos);
  CHECK(refusal("node1:65536", 0, here).empty());  // which has limits of its own
  CHECK(refusal("node1:65537", 0, here).find("on node1") != std::string::npos);
  // What hvdrun holds of each rank is here.
  CHECK(refusal("n[1-100]:60000", 0, here).find("to lead them") != std::string::npos);
  CHECK(refusal("n[1-100]:60000", 100, here).empty());
}

TEST_CASE("this machine has limits, and they are known") {
  const MachineLimits here = limits_of_this_machine();
  CHECK(here.processes > 0);
  CHECK_FALSE(here.processes_name.empty());
  CHECK(here.memory_bytes > (16U << 20U));
}

TEST_CASE("slots that add up to more than a number holds are no placement") {
  HostList hosts(3000, HostSpec{"n", "", 0, 1'000'000});
  CHECK_FALSE(place(hosts, 0).ok());
}

TEST_CASE("a host with a user or a port is not this machine, whatever its name") {
  const auto way = [](const std::string& host, const JobSpec& spec = {}) {
    return transport_name(choose_transport(spec, parse_host_list(host).value().front()));
  };
  CHECK(way("localhost:4") == "local");
  CHECK(way("nobody@localhost") == "ssh");
  CHECK(way("localhost:2222:1") == "ssh");
  CHECK(way("nobody@localhost:2222:1") == "ssh");
  JobSpec spec;
  spec.rsh_command = "ssh {user}@{host}";
  CHECK(way("nobody@localhost", spec) == "rsh");
}

TEST_CASE("hosts that fail for one cause have one line") {
  using Lines = std::vector<std::string>;
  CHECK(unopened_lines({{"a", "a: no answer; try: ssh a true"}}) == Lines{"a: no answer; try: ssh a true"});
  std::vector<std::pair<std::string, std::string>> some;
  for (const char* name : {"n1", "n10", "n2", "n3"}) {
    some.emplace_back(name, std::string(name) + ": no answer; try: ssh " + name + " true");
    some.emplace_back(name, std::string("refused ") + name + " by 10.0.0." + (name + 1) + " port 22");
  }
  some.emplace_back("n4", "n4: something else");
  some.emplace_back("n5", "n5: something else");
  CHECK(unopened_lines(some) == Lines{"n1, n10, n2, n3: no answer; try: ssh n1 true",
                                      "refused n1 by 10.0.0.1 port 22 (the same of 4 hosts: n1, n10, n2, n3)",
                                      "n4: something else", "n5: something else"});
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "node" + std::to_string(i);
    many.emplace_back(name, name + ": no such host");
  }
  const Lines lines = unopened_lines(many);
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().size() < 3000);
  CHECK(lines.front().find(" more: no such host") != std::string::npos);
}

TEST_CASE("a host file of anything is refused in a line without control characters") {
  for (const std::string& text :
       {std::string(1'000'000, '\0'), std::string("\x1b[2J\x1b]0;title\a:4"), std::string("node1 \x1b[31mslots=4"),
        std::string("node1 slots=\x1b[31m"), std::string("n[\x1b-3]"), std::string("[\x1b]:2"),
        std::string("\x1b@node1"), std::string("node1:2000000000 slots=2000000000")}) {
    const auto hosts = parse_hostfile(text, "hosts");
    REQUIRE_FALSE(hosts.ok());
    CHECK(hosts.error().message().size() < 500);
    CHECK(hosts.error().message().find('\x1b') == std::string::npos);
    CHECK(hosts.error().message().find('\0') == std::string::npos);
  }
}

}  // namespace hvd::launch::limits_test
