// launcher/logs: bytes to whole lines, however they are cut, and files that keep them.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/logs/line_splitter.h"
#include "launcher/logs/rank_files.h"

namespace hvd::launch::logs_test {
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

TEST_CASE("a last line without newline passes as it is") {
  CHECK(split({"a\nlast"}) == std::vector<std::string>{"a\n", "last"});
  CHECK(split({"50%\r"}) == std::vector<std::string>{"50%\r"});
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

TEST_CASE("an endless line is passed on in bounded pieces, and nothing of it is lost or added") {
  const std::string piece(300'000, 'x');
  const std::string last = piece + "\r";
  std::string all;
  for (const std::string& line : split({piece, piece, piece, last, "\n", piece, piece, piece, piece})) {
    CHECK(line.size() <= LineSplitter::kMaxLineBytes + piece.size() + 1);
    all += line;
  }
  CHECK(all == piece + piece + piece + last + "\n" + piece + piece + piece + piece);
}

namespace {

class Scratch {
 public:
  Scratch() {
    std::string name = "/tmp/hvd-test-XXXXXX";
    path = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream in(path + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string path;
};

}  // namespace

TEST_CASE("each rank's streams are kept in files of their own, emptied at the start") {
  const Scratch scratch;
  for (int run = 0; run < 2; ++run) {
    std::vector<std::string> failures;
    const auto files = RankFiles::create({scratch.path + "/kept", 0}, 11, [&](const hvd::Error& why) {
                         failures.push_back(why.message());
                       }).value();
    files->write(3, false, "[3]:", "one\n");
    files->write(3, false, "[3]:", "two\n");
    files->write(10, true, "", "err\n");
    files->flush();
    files->flush();
    files->write(3, false, "[3]:", "three\n");
    files->flush();
    CHECK(failures.empty());
    CHECK(scratch.read("kept/rank.03/stdout") == "[3]:one\n[3]:two\n[3]:three\n");
    CHECK(scratch.read("kept/rank.10/stderr") == "err\n");
    CHECK(std::filesystem::exists(scratch.path + "/kept/rank.00/stderr"));
  }
}

TEST_CASE("the folders of ranks have the digits of the first ranks, or as many as they need") {
  CHECK(rank_folder(3, 8) == "rank.3");
  CHECK(rank_folder(3, 11) == "rank.03");
  CHECK(rank_folder(10, 8) == "rank.10");
  CHECK(rank_folder(100, 1) == "rank.100");
}

TEST_CASE("the files of ranks that were started before are added to, under the names that they have") {
  const Scratch scratch;
  for (const bool is_first : {true, false}) {
    hvd::launch::RankFilesOptions options{scratch.path, 0};
    options.named_for = 11;
    options.marker = is_first ? "" : "started again";
    const auto files = RankFiles::create(options, is_first ? 11 : 2, [](const hvd::Error&) { CHECK(false); }).value();
    files->write(1, false, "", "one\n");
    files->flush();
  }
  CHECK(scratch.read("rank.01/stdout") == "one\nstarted again\none\n");
  CHECK(scratch.read("rank.01/stderr") == "started again\n");
  CHECK(scratch.read("rank.10/stdout").empty());
}

TEST_CASE("a file that has grown to its limit makes room, whole lines in each") {
  const Scratch scratch;
  const auto files = RankFiles::create({scratch.path, 10, 2}, 1, [](const hvd::Error&) { CHECK(false); }).value();
  for (const char* line : {"aaaa\n", "bbbb\n", "cccc\n", "a line beyond the limit\n", "dddd\n"}) {
    files->write(0, false, "", line);
    files->flush();
  }
  CHECK(scratch.read("rank.0/stdout") == "dddd\n");
  CHECK(scratch.read("rank.0/stdout.1") == "a line beyond the limit\n");
  CHECK(scratch.read("rank.0/stdout.2") == "cccc\n");
  CHECK_FALSE(std::filesystem::exists(scratch.path + "/rank.0/stdout.3"));
}

TEST_CASE("however lines are written, files of a limited size hold them all in order, none torn and none too long") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Scratch scratch;
    const std::uint64_t limit = 20 + random() % 60;
    const auto files =
        RankFiles::create({scratch.path, limit, 1000}, 1, [](const hvd::Error&) { CHECK(false); }).value();
    std::string all;
    for (int i = 0; i < 40; ++i) {
      static constexpr const char* kEnds[] = {"\n", "\r\n", "\r"};
      const std::string line = std::string(random() % 15, 'x') + kEnds[random() % 3];
      files->write(0, false, "[0]:", line);
      all += "[0]:" + line;
      if (random() % 4 == 0) {
        files->flush();
      }
    }
    files->flush();
    std::string kept = scratch.read("rank.0/stdout");
    for (int number = 1; std::filesystem::exists(scratch.path + "/rank.0/stdout." + std::to_string(number)); ++number) {
      const std::string text = scratch.read("rank.0/stdout." + std::to_string(number));
      CHECK(text.size() <= limit);
      CHECK(text.starts_with("[0]:"));
      kept.insert(0, text);
    }
    CHECK(kept == all);
  }
}

TEST_CASE("old files of an earlier job are removed, and a file that cannot be renamed is told once") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path + "/rank.0");
  std::ofstream(scratch.path + "/rank.0/stdout.1") << "earlier";
  std::ofstream(scratch.path + "/rank.0/stdout") << "later";
  int failures = 0;
  const auto files = RankFiles::create({scratch.path, 10}, 1, [&](const hvd::Error& why) {
                       ++failures;
                       CHECK(why.message().find("cannot rename " + scratch.path + "/rank.0/stdout to ") == 0);
                     }).value();
  CHECK(scratch.read("rank.0/stdout.1") == "earlier");  // as long as no rank has started
  CHECK(scratch.read("rank.0/stdout") == "later");
  files->begin();
  CHECK_FALSE(std::filesystem::exists(scratch.path + "/rank.0/stdout.1"));
  CHECK(scratch.read("rank.0/stdout").empty());
  std::filesystem::create_directories(scratch.path + "/rank.0/stdout.1/in the way");
  for (int i = 0; i < 3; ++i) {
    files->write(0, false, "", "123456789\n");
    files->flush();
  }
  CHECK(failures == 1);
  CHECK(files->folder_of(0).empty());
}

TEST_CASE("a directory that cannot be made is an error before anything runs, one that goes away is told once") {
  const Scratch scratch;
  std::ofstream(scratch.path + "/file") << "x";
  const auto refused = RankFiles::create({scratch.path + "/file", 0}, 1, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("cannot make the directory") != std::string::npos);

  int failures = 0;
  const auto files = RankFiles::create({scratch.path + "/kept", 0}, 2, [&](const hvd::Error& why) {
                       ++failures;
                       CHECK(why.message().find("kept/rank.0/stdout: No such file") != std::string::npos);
                     }).value();
  std::filesystem::remove_all(scratch.path + "/kept");
  for (int rank : {0, 1, 0}) {
    files->write(rank, false, "", "line\n");
    files->flush();
  }
  CHECK(failures == 1);
}

TEST_CASE("a directory that is there for writing and gone when the ranks start is told once") {
  const Scratch scratch;
  std::vector<std::string> failures;
  const auto files = RankFiles::create({scratch.path + "/kept", 0}, 2, [&](const hvd::Error& why) {
                       failures.push_back(why.message());
                     }).value();
  std::filesystem::remove_all(scratch.path + "/kept");
  files->begin();
  files->write(1, false, "", "line\n");
  files->flush();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].find("cannot write " + scratch.path + "/kept/rank.0/stdout") == 0);
  CHECK(files->add_ranks(1).ok());  // whose folder is made
}

}  // namespace hvd::launch::logs_test
