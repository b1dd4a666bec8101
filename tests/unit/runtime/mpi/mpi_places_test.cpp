#include "runtime/mpi/mpi_places.h"

#include <doctest/doctest.h>

namespace hvd::mpi_places_test {
namespace {

MpiPlace on(const std::string& host, std::vector<std::string> ips = {}) {
  return MpiPlace{host, "mnt", "net", std::move(ips), ""};
}

}  // namespace

TEST_CASE("ranks of hosts that follow each other are nodes as their hosts") {
  const std::vector<MpiPlace> places = {on("a"), on("a"), on("b"), on("b"), on("b")};
  const RankMap map = map_by_runs(places, 4);
  CHECK(map.rank == 4);
  CHECK(map.size == 5);
  CHECK(map.node_index == 1);
  CHECK(map.node_count == 2);
  CHECK(map.local_rank == 2);
  CHECK(map.local_size == 3);
  CHECK(map.cross_rank == 0);  // the only node with a third rank
  CHECK(map.cross_size == 1);
  CHECK(map_by_hosts(places, 3).cross_rank == 1);
  CHECK(map_by_hosts(places, 3).cross_size == 2);
}

TEST_CASE("ranks that were dealt out in turns are told their hosts, and linked as nodes of one rank") {
  const std::vector<MpiPlace> places = {on("a"), on("b"), on("a"), on("b")};
  const RankMap told = map_by_hosts(places, 2);
  CHECK(told.local_rank == 1);
  CHECK(told.local_size == 2);
  CHECK(told.node_index == 0);
  CHECK(told.node_count == 2);
  const RankMap linked = map_by_runs(places, 2);
  CHECK(linked.local_rank == 0);
  CHECK(linked.local_size == 1);
  CHECK(linked.node_index == 2);
  CHECK(linked.node_count == 4);
}

TEST_CASE("ranks of a host that share no files are nodes of their own, and local to each other for the program") {
  std::vector<MpiPlace> places = {on("a"), on("a")};
  places[1].sharing = "another";
  CHECK(map_by_runs(places, 1).node_count == 2);
  CHECK(map_by_hosts(places, 1).local_rank == 1);
  const auto address = address_among(places, 1);
  REQUIRE(address.ok());
  CHECK(address.value() == "127.0.0.1");
}

TEST_CASE("a host is reached at the address that is nearest to the others', and never at one that several have") {
  const std::vector<MpiPlace> places = {
      on("a", {"172.17.0.1", "10.1.0.1", "192.168.7.1"}), on("a", {"172.17.0.1", "10.1.0.1", "192.168.7.1"}),
      on("b", {"172.17.0.1", "192.168.7.2", "10.9.0.2"}), on("c", {"fd00::3", "172.17.0.1", "192.168.7.3"})};
  const char* const expected[] = {"192.168.7.1", "192.168.7.1", "192.168.7.2", "192.168.7.3"};
  for (int rank = 0; rank < 4; ++rank) {
    const auto address = address_among(places, rank);
    REQUIRE(address.ok());
    CHECK(address.value() == expected[rank]);
  }
}

TEST_CASE("one node needs no address, the user's is taken, and a host without any is named") {
  CHECK(address_among(std::vector<MpiPlace>{on("a"), on("a")}, 0).value().empty());
  std::vector<MpiPlace> places = {on("a boot", {"10.0.0.1"}), on("b boot")};
  const auto none = address_among(places, 1);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message().find("host b has no address") != std::string::npos);
  places[1].chosen_ip = "10.0.0.9";
  CHECK(address_among(places, 1).value() == "10.0.0.9");
}

TEST_CASE("a place travels whole, and what is cut short or too long is refused by its rank") {
  MpiPlace place = on("host boot", {"10.0.0.1", "fd00::1"});
  place.chosen_ip = "10.0.0.2";
  const std::string body = encode(place);
  const auto decoded = decode_mpi_place(body, 0);
  REQUIRE(decoded.ok());
  CHECK(decoded.value().host == place.host);
  CHECK(decoded.value().ips == place.ips);
  CHECK(decoded.value().chosen_ip == place.chosen_ip);
  for (std::size_t length = 0; length < body.size(); ++length) {
    CHECK_FALSE(decode_mpi_place(body.substr(0, length), 3).ok());
  }
  CHECK(decode_mpi_place(body + "x", 3).error().message().find("rank 3") != std::string::npos);
}

}  // namespace hvd::mpi_places_test
