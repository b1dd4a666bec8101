// MeshPeer is what each rank publishes so that the others can connect to it: its place in the job and its addresses.
// Pure.
//
// It is the body of the "mesh" exchange (base/bytes.h): u16 version | i32 size | i32 node_count | i32 node_index | i32
// local_rank | i32 local_size | u8 is_sealed | text tcp_ip | u16 tcp_port | text unix_path | text word. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"

namespace hvd {

struct MeshPeer {
  int size = 1;
  int node_count = 1;
  int node_index = 0;
  int local_rank = 0;
  int local_size = 1;
  bool is_sealed = false;  // its connections with other nodes are encrypted
  std::string tcp_ip;      // empty: does not listen for other nodes
  std::uint16_t tcp_port = 0;
  std::string unix_path;  // empty: does not listen within its node
  std::string word;       // MeshOptions::word; all ranks use that of rank 0
};

std::string encode(const MeshPeer& peer);
Result<MeshPeer> decode_mesh_peer(const std::string& body, int rank);

// Checks that all ranks agree about the job, with this one's `map` among them, and returns the node of each rank. Every
// node has at least one rank, and a node's ranks are consecutive and numbered from 0.
Result<std::vector<int>> agree_on_nodes(const RankMap& map, const std::vector<MeshPeer>& peers);

}  // namespace hvd
