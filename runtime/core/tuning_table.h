// TuningTable is the file that `hvdrun bench --tune` writes and HVD_TUNING names: a Tuning, and the placement for which
// it was measured.
//
// It is one JSON object (RFC 8259) of numbers and texts:
//   {"hvd_tuning": 1, "ranks": 4, "nodes": 2, "ranks_per_node": 2, "processor": "...", "chunk_bytes": 524288, ...}
// The first five keys are required; a size that is missing keeps its default. Pure; value types.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"
#include "runtime/core/tuning.h"

namespace hvd {

// The placement for which a measurement is valid.
struct TunedPlace {
  int ranks = 1;
  int nodes = 1;
  int ranks_per_node = 1;  // on rank 0's node
  std::string processor;   // of rank 0's node

  friend bool operator==(const TunedPlace&, const TunedPlace&) = default;
};

TunedPlace place_of(const RankMap& map, std::string processor);
// Formats it as "4 ranks on 2 nodes, 2 on the first, with PROCESSOR".
std::string text_of(const TunedPlace& place);

struct TuningTable {
  TunedPlace place;
  Tuning tuning;

  friend bool operator==(const TuningTable&, const TuningTable&) = default;
};

// Total. kInvalid begins with "WHERE:LINE: " and names the key.
Result<TuningTable> parse_tuning_table(std::string_view text, const std::string& where);
// Writes one key a line. Control characters of a processor's name are left out, because the parser refuses them.
std::string to_json(const TuningTable& table);

}  // namespace hvd
