// The file that `hvdrun bench --tune` writes and HVD_TUNING names: a Tuning, and the placement that it was measured on.
//
// One JSON object (RFC 8259) of numbers and texts:
//   {"hvd_tuning": 1, "ranks": 4, "nodes": 2, "ranks_per_node": 2, "processor": "...", "chunk_bytes": 524288, ...}
// The first five are required; a choice that is not there is the runtime's own. Pure; value types.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"
#include "runtime/core/tuning.h"

namespace hvd {

// What a measurement holds for.
struct TunedPlace {
  int ranks = 1;
  int nodes = 1;
  int ranks_per_node = 1;  // on rank 0's
  std::string processor;   // of rank 0's node

  friend bool operator==(const TunedPlace&, const TunedPlace&) = default;
};

TunedPlace place_of(const RankMap& map, std::string processor);
// "4 ranks on 2 nodes, 2 on the first, with PROCESSOR"
std::string text_of(const TunedPlace& place);

struct TuningTable {
  TunedPlace place;
  Tuning tuning;

  friend bool operator==(const TuningTable&, const TuningTable&) = default;
};

// Total. kInvalid begins with "WHERE:LINE: " and names the key.
Result<TuningTable> parse_tuning_table(std::string_view text, const std::string& where);
// A key a line. What no file can hold of a processor's name (control characters) is left out.
std::string to_json(const TuningTable& table);

}  // namespace hvd
