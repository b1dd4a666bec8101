// ShownRanks says which ranks' output comes to the console: "0,4-7". Value type.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

class ShownRanks {
 public:
  // Shows all ranks.
  ShownRanks() = default;
  // Reads numbers and ranges of ranks. An error says what was expected.
  static Result<ShownRanks> parse(std::string_view text);

  [[nodiscard]] bool has(int rank) const;
  // Returns the greatest number that is named; -1: none is.
  [[nodiscard]] int last() const;

 private:
  struct Range {
    int first = 0;
    int last = 0;
  };

  static Result<Range> read_range(std::string_view word);

  std::vector<Range> ranges_;  // empty: all ranks are shown
};

}  // namespace hvd::launch
