#include "runtime/algo/share_blocks.h"

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("the blocks of one's own share and of the others' are the whole chunk, in order, each of one share") {
  for (const std::size_t chunk_bytes : std::vector<std::size_t>{0, 1, 8, 64, 65, 200, 4096, 70'000}) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (int self = 0; self < ranks; ++self) {
        CAPTURE(chunk_bytes);
        CAPTURE(ranks);
        CAPTURE(self);
        std::vector<int> seen(chunk_bytes, 0);
        for (const auto of : {ShareBlocks::Of::kSelf, ShareBlocks::Of::kOthers}) {
          std::size_t at = 0;
          bool is_right = true;
          for (ShareBlocks blocks(chunk_bytes, ranks, self, of, 1024); blocks.next();) {
            const Range block = blocks.block();
            const Range share = share_of(chunk_bytes, ranks, blocks.rank());
            is_right = is_right && block.size() > 0 && block.size() <= 1024 && block.begin >= at &&
                       block.begin >= share.begin && block.end <= share.end &&
                       (blocks.rank() == self) == (of == ShareBlocks::Of::kSelf);
            at = block.end;
            for (std::size_t i = block.begin; i < block.end; ++i) {
              ++seen[i];
            }
          }
          CHECK(is_right);
        }
        CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
      }
    }
  }
}
