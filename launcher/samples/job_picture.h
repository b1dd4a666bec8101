// JobPicture is a running job at one moment, as hvdrun top and the metrics show it. It travels as the answer to the
// question of hvdrun top, so its fields are listed like those of a message (wire/fields.h). Value type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/wire/sample_messages.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct RankShown {
  std::int32_t rank = 0;
  std::int32_t node = 0;
  std::string state;  // "pending", "running", "ended", "failed", "lost"
  std::int32_t restarts = 0;
  bool is_sampled = false;  // the fields of `used` and the rates are known
  RankSample used;
  double cores = 0;        // processors in use
  double bytes_per_s = 0;  // of collectives
  double operations_per_s = 0;
  std::uint64_t lines = 0;         // printed so far
  std::uint64_t output_bytes = 0;  // the same
  std::int64_t silent_ms = -1;     // since it printed last; -1: it has printed nothing
  std::string odd;                 // how it differs from the others, in words; empty: it does not

  static void fields(auto& m, auto& walk) {
    walk(m.rank, m.node, m.state, m.restarts, m.is_sampled, m.used, m.cores, m.bytes_per_s, m.operations_per_s);
    walk(m.lines, m.output_bytes, m.silent_ms, m.odd);
  }
};

struct NodeShown {
  std::string name;
  bool is_connected = false;  // its agent has been reached, and is neither away nor lost
  bool is_away = false;       // its connection is broken, and is being made again
  std::int32_t reconnects = 0;
  bool is_sampled = false;
  double cores = 0;
  std::uint64_t memory_total = 0;
  std::uint64_t memory_free = 0;
  std::vector<GpuSample> gpus;

  static void fields(auto& m, auto& walk) {
    walk(m.name, m.is_connected, m.is_away, m.reconnects, m.is_sampled, m.cores, m.memory_total, m.memory_free, m.gpus);
  }
};

struct JobPicture {
  std::string id;
  std::uint64_t running_ms = 0;  // since hvdrun began with it
  std::vector<NodeShown> nodes;
  std::vector<RankShown> ranks;

  static void fields(auto& m, auto& walk) { walk(m.id, m.running_ms, m.nodes, m.ranks); }
  [[nodiscard]] std::string encode() const;
  static Result<JobPicture> decode(std::string_view body);
};

// Makes one node of those that have one name: where an engine starts the ranks, each of them has an agent of its own.
// Pure.
void join_nodes(JobPicture& view);
// Says of each rank how it differs from the others. Pure.
void mark_odd_ranks(JobPicture& view);

}  // namespace hvd::launch
