#include "runtime/algo/piece_map.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::piece_map_test {
namespace {

struct Text {
  explicit Text(std::vector<std::string> parts) : inputs(std::move(parts)), outputs(inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      pieces.push_back(Piece{inputs[i].data(), outputs[i].data(), inputs[i].size()});
      whole += inputs[i];
    }
  }
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<Piece> pieces;
  std::string whole;
};

}  // namespace

TEST_CASE("any range of pieces is visited in order, in as many parts as it lies in, without empty ones") {
  const Text text({"", "ab", "", "", "c", "defgh", "", "i", ""});
  PieceMap map;
  map.set(text.pieces);
  CHECK(map.size_bytes() == text.whole.size());
  for (std::size_t begin = 0; begin <= text.whole.size(); ++begin) {
    for (std::size_t end = begin; end <= text.whole.size(); ++end) {
      std::string seen;
      map.visit(Range{begin, end}, [&](const std::uint8_t* input, const std::uint8_t* output, std::size_t bytes) {
        CHECK(bytes > 0);
        CHECK(std::equal(input, input + bytes, output));
        CHECK(input != output);
        seen.append(reinterpret_cast<const char*>(input), bytes);
        return true;
      });
      CHECK(seen == text.whole.substr(begin, end - begin));
    }
  }
}

TEST_CASE("a visit ends when it has seen enough, and a map can be set anew") {
  const Text text({"abc", "def"});
  const Text other({"xy"});
  PieceMap map;
  map.set(text.pieces);
  int visits = 0;
  map.visit(Range{1, 6}, [&](const std::uint8_t*, std::uint8_t*, std::size_t) { return ++visits < 1; });
  CHECK(visits == 1);
  map.set(other.pieces);
  CHECK(map.size_bytes() == 2);
  map.set({});
  CHECK(map.size_bytes() == 0);
  map.visit(Range{}, [](const std::uint8_t*, std::uint8_t*, std::size_t) {
    CHECK(false);
    return true;
  });
}

}  // namespace hvd::piece_map_test
