#include "launcher/wire/host_run.h"

#include <doctest/doctest.h>

#include "launcher/wire/messages.h"

namespace hvd::launch::host_run_test {
namespace {

using Machines = std::vector<std::pair<std::string, int>>;

std::string lines_of(const Machines& machines) {
  std::string text;
  for (const auto& [name, slots] : machines) {
    text += name + " slots=" + std::to_string(slots) + "\n";
  }
  return text;
}

void check(const Machines& machines, std::size_t runs) {
  const std::vector<HostRun> made = runs_of(machines);
  CAPTURE(lines_of(machines));
  CHECK(made.size() == runs);
  CHECK(are_valid(made));
  CHECK(hostfile_text(made) == lines_of(machines));
}

}  // namespace

TEST_CASE("host runs: names that count up with equal slots are one, and the text is the same in any case") {
  check({}, 0);
  check({{"a", 1}}, 1);
  check({{"n1", 2}, {"n2", 2}, {"n3", 2}}, 1);
  check({{"n8", 2}, {"n9", 2}, {"n10", 2}, {"n11", 2}}, 1);
  check({{"n08", 2}, {"n09", 2}, {"n10", 2}}, 1);
  check({{"n98", 1}, {"n99", 1}, {"n100", 1}}, 1);
  check({{"n1.cluster2", 4}, {"n2.cluster2", 4}, {"n3.cluster2", 4}}, 1);
  check({{"10.0.0.9", 8}, {"10.0.0.10", 8}, {"10.0.0.11", 8}}, 1);
  check({{"r1n7-ib", 1}, {"r1n8-ib", 1}, {"r2n1-ib", 1}, {"r2n2-ib", 1}}, 2);
  check({{"n1", 2}, {"n2", 1}, {"n3", 1}}, 2);
  check({{"n1", 1}, {"n3", 1}, {"n4", 1}}, 2);
  check({{"n2", 1}, {"n1", 1}}, 2);
  check({{"n1", 1}, {"n02", 1}}, 2);
  check({{"n1", 1}, {"n1", 1}}, 2);
  check({{"n", 1}, {"n1", 1}, {"n2", 1}}, 2);
  check({{"a", 1}, {"b", 1}, {"ab", 1}}, 3);
  check({{"n999999999", 1}, {"n1000000000", 1}, {"n1000000001", 1}}, 1);
  check({{"99999999999999999998", 1}, {"99999999999999999999", 1}}, 2);
  Machines many;
  for (int i = 1; i <= 3000; ++i) {
    many.emplace_back("node" + std::to_string(i), 8);
  }
  check(many, 1);
}

TEST_CASE("host runs: a list that would become a huge file, or has no machine in a run, is refused where it is read") {
  CHECK_FALSE(are_valid({HostRun{"n", "", 0, 1, 0, 1}}));
  CHECK_FALSE(are_valid({HostRun{"n", "", 0, 10, 2, 1}}));
  CHECK_FALSE(are_valid({HostRun{"n", "", 0, 1, 0xFFFFFFFFU, 1}}));
  CHECK_FALSE(are_valid({HostRun{std::string(1U << 20U, 'n'), "", 0, 1, 64, 1}}));
  CHECK_FALSE(are_valid(std::vector<HostRun>(4, HostRun{"n", "", 0, 1, 600'000, 1})));
  StartMessage start;
  start.argv = {"true"};
  start.ranks.emplace_back();
  start.hosts = {HostRun{"n", "", 1, 1, 5, 2}};
  CHECK(StartMessage::decode(start.encode()).ok());
  start.hosts[0].count = 0xFFFFFFFFU;
  CHECK_FALSE(StartMessage::decode(start.encode()).ok());
}

}  // namespace hvd::launch::host_run_test
