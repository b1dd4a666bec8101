#include "runtime/algo/share_blocks.h"

#include <algorithm>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::share_blocks_test {
namespace {

// Memory in pieces of random sizes, some of them nothing; each byte's input is its number, its output is apart.
struct Pieces {
  Pieces(std::size_t total, unsigned seed) : inputs(total), outputs(total) {
    std::mt19937 random(seed);
    for (std::size_t at = 0; at < total;) {
      const std::size_t size = std::min<std::size_t>(random() % 3 == 0 ? 0 : random() % 5000, total - at);
      all.push_back({inputs.data() + at, outputs.data() + at, size});
      at += size;
    }
    all.push_back({});
  }

  std::vector<std::uint8_t> inputs;
  std::vector<std::uint8_t> outputs;
  std::vector<Piece> all;
};

}  // namespace

TEST_CASE(
    "the blocks of one's own share and of the others' are all chunks, in order, each of one share and one piece") {
  constexpr std::size_t kChunk = 20'000;
  for (const std::size_t total : std::vector<std::size_t>{0, 1, 8, 64, 65, 200, 4096, 70'000}) {
    const Pieces pieces(total, static_cast<unsigned>(total));
    for (const int ranks : {1, 2, 3, 8}) {
      for (int self = 0; self < ranks; ++self) {
        CAPTURE(total);
        CAPTURE(ranks);
        CAPTURE(self);
        std::vector<int> seen(total, 0);
        for (const auto of : {ShareBlocks::Of::kSelf, ShareBlocks::Of::kOthers}) {
          PieceCursor cursor(pieces.all);
          bool is_right = true;
          for (std::size_t number = 0; number < chunks_for(total, kChunk); ++number) {
            const Range chunk = chunk_of(total, kChunk, number);
            std::size_t at = 0;
            ShareBlocks block(cursor, chunk, ranks, self, of, 1024);
            while (block.next()) {
              const Range share = share_of(chunk.size(), ranks, block.rank());
              const std::size_t end = block.begin() + block.size();
              const auto place = static_cast<std::ptrdiff_t>(chunk.begin + block.begin());
              is_right = is_right && block.size() > 0 && block.size() <= 1024 && block.begin() >= at &&
                         block.begin() >= share.begin && end <= share.end &&
                         (block.rank() == self) == (of == ShareBlocks::Of::kSelf) &&
                         block.input() - pieces.inputs.data() == place &&
                         block.output() - pieces.outputs.data() == place;
              at = end;
              for (std::size_t i = chunk.begin + block.begin(); i < chunk.begin + end; ++i) {
                ++seen[i];
              }
            }
            is_right = is_right && !block.next() && !block.next();
          }
          CHECK(is_right);
        }
        CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
      }
    }
  }
}

}  // namespace hvd::share_blocks_test
