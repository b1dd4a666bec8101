#include "runtime/link/mesh_peer.h"

#include <algorithm>

#include <doctest/doctest.h>

namespace hvd::mesh_peer_test {
namespace {

// The peers of a placement; ranks_on_node[i] ranks on node i.
std::vector<MeshPeer> peers_of(const std::vector<int>& ranks_on_node) {
  std::vector<MeshPeer> peers;
  int size = 0;
  for (const int ranks : ranks_on_node) {
    size += ranks;
  }
  for (int node = 0; node < static_cast<int>(ranks_on_node.size()); ++node) {
    const int ranks = ranks_on_node[static_cast<std::size_t>(node)];
    for (int local_rank = 0; local_rank < ranks; ++local_rank) {
      MeshPeer peer;
      peer.size = size;
      peer.node_count = static_cast<int>(ranks_on_node.size());
      peer.node_index = node;
      peer.local_rank = local_rank;
      peer.local_size = ranks;
      peers.push_back(peer);
    }
  }
  return peers;
}

RankMap map_of_job(int size, int node_count) {
  RankMap map;
  map.size = size;
  map.node_count = node_count;
  return map;
}

}  // namespace

TEST_CASE("what a rank publishes is read back as it was") {
  MeshPeer peer{8, 3, 2, 1, 4, true, "10.0.0.1", 54321, "/tmp/x/mesh-1-abc", "a word"};
  const MeshPeer back = decode_mesh_peer(encode(peer), 5).value();
  CHECK(encode(back) == encode(peer));
  CHECK(back.is_sealed);
  CHECK(back.tcp_port == 54321);
  CHECK(back.unix_path == "/tmp/x/mesh-1-abc");
  CHECK(back.word == "a word");
}

TEST_CASE("a cut, longer or other body is refused and the rank named") {
  const std::string whole = encode(MeshPeer{});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto peer = decode_mesh_peer(whole.substr(0, size), 5);
    REQUIRE_FALSE(peer.ok());
    CHECK(peer.error().message().find("rank 5") != std::string::npos);
  }
  CHECK_FALSE(decode_mesh_peer(whole + "x", 5).ok());
  std::string other_version = whole;
  other_version[0] = 9;
  CHECK(decode_mesh_peer(other_version, 5).error().message().find("version") != std::string::npos);
}

TEST_CASE("ranks that agree get the node of each rank") {
  CHECK(agree_on_nodes(map_of_job(4, 2), peers_of({3, 1})).value() == std::vector<int>{0, 0, 0, 1});
  CHECK(agree_on_nodes(map_of_job(7, 3), peers_of({1, 2, 4})).value() == std::vector<int>{0, 1, 1, 2, 2, 2, 2});
}

TEST_CASE("nodes may come in any order as long as each one's ranks are together") {
  auto peers = peers_of({1, 2});
  std::rotate(peers.begin(), peers.begin() + 1, peers.end());
  CHECK(agree_on_nodes(map_of_job(3, 2), peers).value() == std::vector<int>{1, 1, 0});
}

TEST_CASE("ranks that do not make a job together are refused") {
  const auto refused = [](const std::vector<MeshPeer>& peers) { return !agree_on_nodes(map_of_job(4, 2), peers).ok(); };
  CHECK_FALSE(refused(peers_of({2, 2})));
  auto peers = peers_of({2, 2});
  peers.pop_back();
  CHECK(refused(peers));
  peers = peers_of({2, 2});
  std::swap(peers[1], peers[2]);  // nodes 0 1 0 1
  CHECK(refused(peers));
  for (const auto& spoil :
       std::vector<void (*)(MeshPeer&)>{[](MeshPeer& p) { p.size = 5; }, [](MeshPeer& p) { p.node_count = 3; },
                                        [](MeshPeer& p) { p.node_index = 2; }, [](MeshPeer& p) { p.node_index = -1; },
                                        [](MeshPeer& p) { p.node_index = 0; }, [](MeshPeer& p) { p.local_rank = 0; },
                                        [](MeshPeer& p) { p.local_size = 3; }}) {
    peers = peers_of({2, 2});
    spoil(peers[3]);
    CHECK(refused(peers));
  }
  CHECK_FALSE(agree_on_nodes(map_of_job(2, 2), peers_of({2, 0})).ok());
}

TEST_CASE("ranks of which one encrypts and another does not refuse each other, and both are named") {
  for (const std::size_t odd_one : {std::size_t{0}, std::size_t{2}}) {
    auto peers = peers_of({2, 2});
    peers[odd_one].is_sealed = true;
    const auto nodes = agree_on_nodes(map_of_job(4, 2), peers);
    REQUIRE_FALSE(nodes.ok());
    CHECK(nodes.error().code() == Code::kMismatch);
    const std::string other = odd_one == 0 ? "rank 1 has not" : "rank 0 has not";
    CHECK(nodes.error().message().find("rank " + std::to_string(odd_one) +
                                       " has HVD_LINK_SECURITY=encrypt and rank ") == 0);
    CHECK(nodes.error().message().find(other + "; it must be the same on all ranks") != std::string::npos);
  }
  auto all = peers_of({2, 2});
  for (MeshPeer& peer : all) {
    peer.is_sealed = true;
  }
  CHECK(agree_on_nodes(map_of_job(4, 2), all).ok());
}

}  // namespace hvd::mesh_peer_test
