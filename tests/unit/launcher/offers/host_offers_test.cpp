// launcher/offers: which ranks join and leave a running job as its hosts change, and what a user's text says of hosts.
#include "launcher/offers/host_offers.h"

#include <string>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/offers/offered_hosts.h"

namespace hvd::launch::host_offers_test {

using namespace std::chrono_literals;

namespace {

const TimePoint kNow{1000s};

HostOffers offers(const std::string& hosts, int most = 100) {
  return {hosts.empty() ? HostList() : parse_host_list(hosts).value(), {most, 10s, 60s}};
}

// Ranks 0, 1, ... on these hosts.
std::vector<HostedRank> ranks_on(const std::string& hosts) {
  std::vector<HostedRank> ranks;
  const HostList list = parse_host_list(hosts).value();
  for (const HostSpec& host : list) {
    for (int local = 0; local < host.slots; ++local) {
      ranks.push_back({static_cast<int>(ranks.size()), host.name, local});
    }
  }
  return ranks;
}

// "c+0x2 a+2x1": two ranks join on c, and one on a beside two others.
std::string joining(const HostOffers& hosts, const std::string& there, TimePoint now = kNow) {
  std::string text;
  for (const JoiningRanks& ranks : hosts.joining(ranks_on(there), now)) {
    text += (text.empty() ? "" : " ") + ranks.host.name + "+" + std::to_string(ranks.first_local) + "x" +
            std::to_string(ranks.count);
  }
  return text;
}

std::string hosts_in(const std::string& text, int slots = 0) {
  const auto offered = parse_offered_hosts(text, slots, "it");
  if (!offered.ok()) {
    return offered.error().message();
  }
  std::string hosts;
  for (const HostSpec& host : offered.value().hosts) {
    hosts += host.name + ":" + std::to_string(host.slots) + " ";
  }
  for (const std::string& note : offered.value().notes) {
    hosts += "(" + note + ")";
  }
  return hosts;
}

}  // namespace

TEST_CASE("hosts that are new, and slots that are new on a host, get ranks in the order of the hosts") {
  CHECK(joining(offers("a:2,b:1"), "a:2,b:1") == "");
  CHECK(joining(offers("a:2,b:1,c:2"), "a:2,b:1") == "c+0x2");
  CHECK(joining(offers("c:2,a:3,b:1"), "a:2,b:1") == "c+0x2 a+2x1");
  CHECK(joining(offers("a:1"), "a:2") == "");
}

TEST_CASE("slots that have lost their ranks get others, wherever they are on the host") {
  std::vector<HostedRank> there = ranks_on("a:5,b:2");
  std::erase_if(there, [](const HostedRank& rank) { return rank.rank == 1 || rank.rank == 2 || rank.rank == 5; });
  const auto found = offers("a:6,b:2").joining(there, kNow);
  REQUIRE(found.size() == 3);
  CHECK((found[0].host.name == "a" && found[0].first_local == 1 && found[0].count == 2));
  CHECK((found[1].host.name == "a" && found[1].first_local == 5 && found[1].count == 1));
  CHECK((found[2].host.name == "b" && found[2].first_local == 0 && found[2].count == 1));
  CHECK(offers("a:6,b:2", 5).joining(there, kNow).size() == 1);
}

TEST_CASE("no more ranks join than the job may have") {
  CHECK(joining(offers("a:2,b:4,c:4", 5), "a:2") == "b+0x3");
  CHECK(joining(offers("a:2,b:4", 2), "a:2") == "");
  CHECK(joining(offers("a:2,b:4", 1), "a:2") == "");
}

TEST_CASE("ranks that are to leave are replaced before they have, also where the job may have no more") {
  CHECK(joining(offers("a:2,c:2", 4), "a:2,b:2") == "c+0x2");
  CHECK(joining(offers("a:2,b:1,c:2", 4), "a:2,b:2") == "c+0x1");
  CHECK(joining(offers("a:2", 4), "a:2,b:2") == "");
  std::vector<HostedRank> there = ranks_on("a:2,b:2");
  there[3].is_leaving = true;  // its node has asked
  CHECK(offers("a:2,b:2,c:2", 4).joining(there, kNow).front().count == 1);
}

TEST_CASE("when a host is used again whose ranks were replaced, the last ranks leave") {
  CHECK(offers("a:2,b:2,c:2", 4).leaving(ranks_on("a:2,b:2,c:2")) == std::vector<int>{5, 4});
  std::vector<HostedRank> there = ranks_on("a:2,b:2,c:2");
  there[5].has_called = true;  // it leaves by itself
  CHECK(offers("a:2,b:2,c:2", 5).leaving(there) == std::vector<int>{4});
}

TEST_CASE("ranks leave whose host is not there, or has no slot for them any more") {
  CHECK(offers("a:2,b:1").leaving(ranks_on("a:2,b:1")).empty());
  CHECK(offers("b:1").leaving(ranks_on("a:2,b:1")) == std::vector<int>{0, 1});
  CHECK(offers("a:1,b:1").leaving(ranks_on("a:2,b:1")) == std::vector<int>{1});
  CHECK(offers("").leaving(ranks_on("a:2,b:1")) == std::vector<int>{0, 1, 2});
}

TEST_CASE("a host that has failed is left alone, twice as long each time, and what runs there may stay") {
  HostOffers hosts = offers("a:2,b:2");
  CHECK_FALSE(hosts.next_return(kNow));
  CHECK(hosts.exclude("b", kNow) == 10s);
  CHECK(hosts.exclude("b", kNow + 4s) == 6s);  // the same failure
  CHECK(joining(hosts, "a:2") == "");
  CHECK(hosts.leaving(ranks_on("a:2,b:1")).empty());
  CHECK(hosts.next_return(kNow) == kNow + 10s);
  CHECK(joining(hosts, "a:2", kNow + 10s) == "b+0x2");
  CHECK(hosts.exclude("b", kNow + 20s) == 20s);
  CHECK(hosts.exclude("b", kNow + 40s) == 40s);
  CHECK(hosts.exclude("b", kNow + 80s) == 60s);
  CHECK(hosts.exclude("b", kNow + 140s) == 60s);
  CHECK(hosts.exclude("b", kNow + 140s, 90s) == 90s);  // what it had may live on for so long
  CHECK(hosts.exclude("b", kNow + 140s, 20s) == 90s);
  CHECK(hosts.exclude("b", kNow + 2h) == 10s);  // an hour of good work is forgiven
  CHECK(joining(hosts, "a:2", kNow + 2h + 11s) == "b+0x2");
}

TEST_CASE("hosts are read one a line; none is none, and the first line of a host counts") {
  CHECK(hosts_in("a:2\nb slots=3\n\n  # nobody\nc:1 # one\n") == "a:2 b:3 c:1 ");
  CHECK(hosts_in("") == "");
  CHECK(hosts_in("a\nb:2\n[fe80::1]\n", 4) == "a:4 b:2 fe80::1:4 ");
  CHECK(hosts_in("a\n") == "it says no slots of a; it is to print host:slots, or give --slots-per-host");
  CHECK(hosts_in("a:2\nb:1\na:3\n") == "a:2 b:1 (it names a twice; the first line counts)");
  CHECK(hosts_in("a:2\n\x1b[31mTraceback\n", 1).starts_with("it:2:1: '?[31mTraceback': '[' without ']'"));
  CHECK(hosts_in("n[1-3]:2") == "n1:2 n2:2 n3:2 ");
}

}  // namespace hvd::launch::host_offers_test
