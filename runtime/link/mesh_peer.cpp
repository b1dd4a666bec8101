#include "runtime/link/mesh_peer.h"

#include "runtime/base/bytes.h"

namespace hvd {
namespace {

constexpr std::uint16_t kHelloVersion = 4;

std::string number(int value) {
  return std::to_string(value);
}

Result<void> check_rank(const RankMap& map, int rank, const MeshPeer& peer) {
  const std::string who = "rank " + number(rank);
  if (peer.size != map.size || peer.node_count != map.node_count) {
    return Error(Code::kMismatch, who + " is in a job of " + number(peer.size) + " ranks on " +
                                      number(peer.node_count) + " nodes, rank " + number(map.rank) + " in one of " +
                                      number(map.size) + " on " + number(map.node_count));
  }
  if (peer.node_index < 0 || peer.node_index >= map.node_count) {
    return Error(Code::kInvalid, who + " is on node " + number(peer.node_index) + " of " + number(map.node_count));
  }
  return {};
}

// Both ends must want encryption. A plain connection instead would be less than one of them was asked to use. Ranks of
// one node agree too, though they have no connection to encrypt: a job must not begin to fail with its second node.
Result<void> check_security(const std::vector<MeshPeer>& peers) {
  for (std::size_t rank = 1; rank < peers.size(); ++rank) {
    if (peers[rank].is_sealed != peers[0].is_sealed) {
      return Error(Code::kMismatch, "rank " + number(peers[0].is_sealed ? 0 : static_cast<int>(rank)) +
                                        " has HVD_LINK_SECURITY=encrypt and rank " +
                                        number(peers[0].is_sealed ? static_cast<int>(rank) : 0) +
                                        " has not; it must be the same on all ranks, as hvdrun --secure-links "
                                        "makes it");
    }
  }
  return {};
}

}  // namespace

std::string encode(const MeshPeer& peer) {
  ByteWriter out;
  out.u16(kHelloVersion).i32(peer.size).i32(peer.node_count).i32(peer.node_index).i32(peer.local_rank);
  out.i32(peer.local_size)
      .u8(peer.is_sealed ? 1 : 0)
      .text(peer.tcp_ip)
      .u16(peer.tcp_port)
      .text(peer.unix_path)
      .text(peer.word);
  return std::move(out).str();
}

Result<MeshPeer> decode_mesh_peer(const std::string& body, int rank) {
  ByteReader in(body);
  if (const std::uint16_t version = in.u16(); in.ok() && version != kHelloVersion) {
    return Error(Code::kProtocol, "rank " + number(rank) + " runs another version of libhvd (mesh version " +
                                      number(version) + ", here " + number(kHelloVersion) + ")");
  }
  MeshPeer peer;
  peer.size = in.i32();
  peer.node_count = in.i32();
  peer.node_index = in.i32();
  peer.local_rank = in.i32();
  peer.local_size = in.i32();
  peer.is_sealed = in.u8() != 0;
  peer.tcp_ip = in.text();
  peer.tcp_port = in.u16();
  peer.unix_path = in.text();
  peer.word = in.text();
  if (!in.finished()) {
    return Error(Code::kProtocol, "rank " + number(rank) + " published an address that makes no sense");
  }
  return peer;
}

Result<std::vector<int>> agree_on_nodes(const RankMap& map, const std::vector<MeshPeer>& peers) {
  if (peers.size() != static_cast<std::size_t>(map.size)) {
    return Error(Code::kProtocol,
                 number(static_cast<int>(peers.size())) + " ranks answered in a job of " + number(map.size));
  }
  HVD_TRY(check_security(peers));
  std::vector<int> node_of_rank;
  std::vector<int> ranks_on(static_cast<std::size_t>(map.node_count > 0 ? map.node_count : 0), 0);
  for (int rank = 0; rank < map.size; ++rank) {
    const MeshPeer& peer = peers[static_cast<std::size_t>(rank)];
    HVD_TRY(check_rank(map, rank, peer));
    int& seen = ranks_on[static_cast<std::size_t>(peer.node_index)];
    const bool continues_node = node_of_rank.empty() || seen == 0 || node_of_rank.back() == peer.node_index;
    if (peer.local_rank != seen || !continues_node) {
      return Error(Code::kInvalid, "rank " + number(rank) + " says that it is local rank " + number(peer.local_rank) +
                                       " of node " + number(peer.node_index) + ", but " + number(seen) +
                                       " ranks before it are on that node; the ranks of a node must be consecutive");
    }
    ++seen;
    node_of_rank.push_back(peer.node_index);
  }
  for (int rank = 0; rank < map.size; ++rank) {
    const MeshPeer& peer = peers[static_cast<std::size_t>(rank)];
    if (const int on_node = ranks_on[static_cast<std::size_t>(peer.node_index)]; peer.local_size != on_node) {
      return Error(Code::kInvalid, "rank " + number(rank) + " says that node " + number(peer.node_index) + " has " +
                                       number(peer.local_size) + " ranks, but " + number(on_node) + " have joined");
    }
  }
  for (int node = 0; node < map.node_count; ++node) {
    if (ranks_on[static_cast<std::size_t>(node)] == 0) {
      return Error(Code::kInvalid, "node " + number(node) + " of " + number(map.node_count) + " has no rank");
    }
  }
  return node_of_rank;
}

}  // namespace hvd
