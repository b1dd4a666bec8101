// launcher/logs: bytes to whole lines, however they are cut.
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/logs/line_splitter.h"

using hvd::launch::LineSplitter;

namespace {

std::vector<std::string> split(const std::vector<std::string>& pieces) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto emit = [&lines](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& piece : pieces) {
    splitter.feed(piece, emit);
  }
  splitter.finish(emit);
  return lines;
}

}  // namespace

TEST_CASE("lines end with newline, carriage return and newline, or a lone carriage return") {
  CHECK(split({"a\nb\r\nc\rd\n"}) == std::vector<std::string>{"a\n", "b\r\n", "c\r", "d\n"});
  CHECK(split({"\n\n"}) == std::vector<std::string>{"\n", "\n"});
}

TEST_CASE("a last line without newline is given one") {
  CHECK(split({"a\nlast"}) == std::vector<std::string>{"a\n", "last\n"});
  CHECK(split({"50%\r"}) == std::vector<std::string>{"50%\r\n"});
  CHECK(split({""}).empty());
}

TEST_CASE("a carriage return at the end of a read waits for its newline") {
  CHECK(split({"a\r", "\nb\n"}) == std::vector<std::string>{"a\r\n", "b\n"});
  CHECK(split({"a\r", "b\n"}) == std::vector<std::string>{"a\r", "b\n"});
}

TEST_CASE("bytes pass as they are") {
  const std::string odd("\xff\x00\xe2\x82", 4);
  CHECK(split({odd.substr(0, 2), odd.substr(2) + "\n"}) == std::vector<std::string>{odd + "\n"});
}

TEST_CASE("any cutting of the same bytes gives the same lines") {
  std::mt19937 random(11);
  const std::string alphabet = "ab\r\n\xc3\xa9";
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::size_t n = random() % 40; n > 0; --n) {
      text += alphabet[random() % alphabet.size()];
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 5;
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    CHECK(split(pieces) == split({text}));
  }
}

TEST_CASE("an endless line is passed on in bounded pieces, and nothing of it is lost") {
  const std::string piece(300'000, 'x');
  std::size_t bytes = 0;
  for (const std::string& line : split({piece, piece, piece, piece, piece, piece, piece, piece})) {
    CHECK(line.size() <= LineSplitter::kMaxLineBytes + piece.size() + 1);
    bytes += line.size() - 1;
  }
  CHECK(bytes == 8 * piece.size());
}
