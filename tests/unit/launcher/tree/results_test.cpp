// launcher/tree: what comes home from a node; the folders are real.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/tree/result_keeper.h"
#include "launcher/tree/result_sender.h"
#include "runtime/base/clock.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::results_test {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> paths_of(const std::vector<TreeEntry>& entries) {
  std::vector<std::string> paths;
  for (const TreeEntry& entry : entries) {
    paths.push_back(entry.path);
  }
  return paths;
}

WrittenEntry brought(const std::string& root, const std::string& path) {
  WrittenEntry written;
  written.entry.path = path;
  struct stat status{};
  REQUIRE(::lstat((root + "/" + path).c_str(), &status) == 0);
  written.describe(status);
  return written;
}

// A node's sender and the launcher's keeper, with what is on the way between them.
struct Way {
  explicit Way(std::string home) {
    ResultKeeper::Sink sink;
    sink.send = [this](int, AgentMessage, std::string_view body) {
      credits.push_back(ResultCredit::decode(body).value());
    };
    sink.on_failed = [this](int, const Error& why) { failures.push_back(why.message()); };
    sink.on_missed = [this](int, const Error& why) { missed.push_back(why.message()); };
    keeper = std::make_unique<ResultKeeper>(std::move(home), std::move(sink));
  }

  void bring_home(const std::string& root, const TreeIndex& index, const std::vector<std::string>& patterns,
                  const std::string& name = "node1") {
    bool is_over = false;
    std::deque<std::pair<AgentMessage, std::string>> way;
    std::uint64_t unanswered = 0;
    ResultSender::Sink sink;
    sink.send = [&](AgentMessage type, std::string_view body) {
      unanswered += body.size();
      sent_bytes += body.size();
      ++counts[type];
      way.emplace_back(type, body);
    };
    sink.on_problem = [this](const std::string& why) { problems.push_back(why); };
    sink.on_over = [&is_over] { is_over = true; };
    ResultSender sender(*loop, root, std::move(sink));
    sender.begin(index, patterns);
    while (!is_over || !way.empty()) {
      most_unanswered = std::max(most_unanswered, unanswered);
      if (!is_over) {
        REQUIRE(loop->turn(Deadline::after(way.empty() ? Duration(std::chrono::seconds(10)) : Duration::zero())).ok());
      }
      if (!way.empty()) {
        const auto [type, body] = std::move(way.front());
        way.pop_front();
        REQUIRE(keeper->on_message(0, name, type, body).ok());
        while (!credits.empty()) {
          unanswered -= credits.front().bytes;
          sender.on_credit(credits.front());
          credits.pop_front();
        }
      }
    }
  }

  const SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::unique_ptr<ResultKeeper> keeper;
  std::deque<ResultCredit> credits;
  std::vector<std::string> failures;
  std::vector<std::string> missed;
  std::vector<std::string> problems;
  std::uint64_t most_unanswered = 0;
  std::uint64_t sent_bytes = 0;
  std::map<AgentMessage, int> counts;
};

}  // namespace

TEST_CASE("results are what fits and was not brought as it is") {
  const test::Folder folder;
  const std::string& root = folder.path;
  test::write_file(root + "/train.py", "brought");
  test::write_file(root + "/old.pt", "brought");
  test::write_file(root + "/new.pt", "made");
  test::write_file(root + "/deep/er/new.pt", "made");
  test::write_file(root + "/deep/log", "made");
  fs::create_symlink("new.pt", root + "/last.pt");
  TreeIndex index;
  index.entries = {brought(root, "train.py"), brought(root, "old.pt")};
  const auto found = [&](const char* patterns) {
    ResultWalk walk(root, index, IgnoreRules(patterns));
    while (!walk.is_over()) {
      walk.look_on(1);
    }
    return paths_of(walk.take());
  };
  CHECK(found("*.pt") == std::vector<std::string>{"deep", "deep/er", "deep/er/new.pt", "last.pt", "new.pt"});
  CHECK(found("/deep/") == std::vector<std::string>{"deep", "deep/er", "deep/er/new.pt", "deep/log"});
  CHECK(found("*.pt\n!last.pt\n!deep/er/*") == std::vector<std::string>{"new.pt"});
  CHECK(found("nothing").empty());
  test::write_file(root + "/old.pt", "changed by a rank");
  CHECK(found("old.pt") == std::vector<std::string>{"old.pt"});
}

TEST_CASE("results come home with rights and links, however large, a window at a time") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  const std::string home = folder.path + "/home";
  test::write_file(node + "/out/big", std::string(20U << 20U, 'b'));
  test::write_file(node + "/out/small", "s");
  test::write_file(node + "/out/none", "");
  ::chmod((node + "/out/small").c_str(), 0440);
  fs::create_symlink("/etc", node + "/out/etc");
  Way way(home);
  CHECK(way.keeper->summary() == "");
  way.bring_home(node, {}, {"/out/"});
  CHECK(way.failures.empty());
  CHECK(test::read_file(home + "/node1/out/big") == test::read_file(node + "/out/big"));
  CHECK(test::read_file(home + "/node1/out/small") == "s");
  CHECK(fs::status(home + "/node1/out/small").permissions() == fs::perms(0440));
  CHECK(fs::file_size(home + "/node1/out/none") == 0);
  CHECK(fs::read_symlink(home + "/node1/out/etc") == "/etc");
  CHECK(way.keeper->summary() == "3 files (20971521 bytes) of 1 node are in " + home);
  CHECK(way.most_unanswered < kTreeWindow + (1U << 20U));

  // Once more: what is there is replaced, and a link there is not followed.
  const std::string elsewhere = folder.path + "/elsewhere";
  test::write_file(elsewhere, "not yours");
  fs::remove(home + "/node1/out/small");
  fs::create_symlink(elsewhere, home + "/node1/out/small");
  way.bring_home(node, {}, {"small"});
  CHECK(test::read_file(home + "/node1/out/small") == "s");
  CHECK(test::read_file(elsewhere) == "not yours");
}

TEST_CASE("folders of results have what the umask here leaves of their rights, as files have") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  const std::string home = folder.path + "/home";
  test::write_file(node + "/out/deep/log", "made");
  for (const char* made : {"/out", "/out/deep", "/out/deep/log"}) {
    REQUIRE(::chmod((node + made).c_str(), 0777) == 0);
  }
  const mode_t before = ::umask(027);
  Way way(home);
  way.bring_home(node, {}, {"/out/"});
  ::chmod((home + "/node1/out").c_str(), 0700);
  way.bring_home(node, {}, {"/out/"});
  ::umask(before);
  CHECK(way.failures.empty());
  for (const char* made : {"/out", "/out/deep", "/out/deep/log"}) {
    CHECK(fs::status(home + "/node1" + made).permissions() == fs::perms(0750));
  }
}

TEST_CASE("results are looked for and named in portions, and the loop goes on in between") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  for (int number = 0; number < 12'000; ++number) {
    const std::string place = node + "/" + std::to_string(number % 3) + (number < 5'000 ? "/out/" : "/other/");
    fs::create_directories(place);
    std::ofstream(place + std::to_string(number)) << number;
  }
  Way way(folder.path + "/home");
  int turns = 0;
  const std::function<void()> count = [&] {
    ++turns;
    way.loop->after(Duration::zero(), count);
  };
  way.loop->after(Duration::zero(), count);
  way.bring_home(node, {}, {"out"});
  CHECK(way.failures.empty());
  CHECK(turns >= 12);
  CHECK(way.counts[AgentMessage::kResultList] >= 4);
  CHECK(way.keeper->summary() == "5000 files (18890 bytes) of 1 node are in " + folder.path + "/home");
  CHECK(test::read_file(folder.path + "/home/node1/1/out/4999") == "4999");
}

TEST_CASE("what cannot be kept is told once, and the node sends no more than is on its way") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  for (int number = 0; number < 6; ++number) {
    test::write_file(node + "/a/" + std::to_string(number), std::string(6U << 20U, 'a'));
  }
  test::write_file(folder.path + "/home", "no folder");
  Way way(folder.path + "/home");
  way.bring_home(node, {}, {"a"});
  CHECK(way.failures == std::vector<std::string>{"--sync-back: " + folder.path + "/home/node1: Not a directory"});
  CHECK(way.keeper->summary() == "");
  CHECK(way.sent_bytes < 2 * kTreeWindow);
}

TEST_CASE("a host's name cannot lead out of the folder, and what nobody has named is refused") {
  const test::Folder folder;
  test::write_file(folder.path + "/node/a", "x");
  Way way(folder.path + "/home");
  way.bring_home(folder.path + "/node", {}, {"a"}, "../../elsewhere");
  CHECK(test::read_file(folder.path + "/home/node/a") == "x");
  CHECK_FALSE(way.keeper->on_message(7, "node7", AgentMessage::kResultBytes, FileBytes{{FilePiece{}}}.encode()).ok());
  CHECK_FALSE(way.keeper->on_message(0, "node", AgentMessage::kResultBytes, FileBytes{{FilePiece{}}}.encode()).ok());
  CHECK_FALSE(way.keeper->on_message(9, "node9", AgentMessage::kResultList, TreeList{true, {}}.encode()).ok());
  TreeEntry entry;
  entry.path = "huge";
  entry.size = ~std::uint64_t{0};
  FilePiece hole;
  hole.hole = entry.size;
  REQUIRE(way.keeper->on_message(9, "node9", AgentMessage::kResultList, TreeList{true, {entry}}.encode()).ok());
  REQUIRE(way.keeper->on_message(9, "node9", AgentMessage::kResultBytes, FileBytes{{hole}}.encode()).ok());
  CHECK(way.missed == std::vector<std::string>{"--sync: " + folder.path + "/home/node9/huge: File too large"});
  // While the rest of that file is awaited, there is no other list; and a hole has an end.
  CHECK_FALSE(way.keeper->on_message(9, "node9", AgentMessage::kResultList, TreeList{true, {entry}}.encode()).ok());
  entry.size = 1000;
  REQUIRE(way.keeper->on_message(10, "node10", AgentMessage::kResultList, TreeList{true, {entry}}.encode()).ok());
  CHECK_FALSE(way.keeper->on_message(10, "node10", AgentMessage::kResultBytes, FileBytes{{hole}}.encode()).ok());
  entry.path = "../a";
  CHECK_FALSE(way.keeper->on_message(8, "node8", AgentMessage::kResultList, TreeList{true, {entry}}.encode()).ok());
}

TEST_CASE("a result with holes keeps them, so that it may be larger than the disk") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  const std::string home = folder.path + "/home/node1";
  test::write_file(node + "/a.pt", "first");
  fs::resize_file(node + "/a.pt", std::uintmax_t{1} << 42U);
  std::fstream(node + "/a.pt", std::ios::in | std::ios::out).seekp(std::streamoff{1} << 41U) << "second";
  test::write_file(node + "/b.pt", std::string(1'000'000, 'b'));
  fs::resize_file(node + "/b.pt", 500'000'000);
  test::write_file(node + "/c.pt", "whole");
  Way way(folder.path + "/home");
  way.bring_home(node, {}, {"*.pt"});
  CHECK(way.failures.empty());
  CHECK(way.missed.empty());
  CHECK(way.sent_bytes < 1'100'000);
  CHECK(test::read_file(home + "/c.pt") == "whole");
  CHECK(test::read_file(home + "/b.pt") == test::read_file(node + "/b.pt"));
  struct stat status{};
  REQUIRE(::stat((home + "/a.pt").c_str(), &status) == 0);
  CHECK(status.st_size == off_t{1} << 42U);
  CHECK(status.st_blocks < 2000);
  std::ifstream back(home + "/a.pt");
  std::string text(5, '-');
  back.read(text.data(), 5);
  CHECK(text == "first");
  text.resize(6);
  back.seekg(std::streamoff{1} << 41U).read(text.data(), 6);
  CHECK(text == "second");
}

TEST_CASE("a result that cannot be kept is named and not sent to its end, and the others come") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  const std::string home = folder.path + "/home";
  test::write_file(node + "/a", "a");
  test::write_file(node + "/b", std::string(50U << 20U, 'b'));
  test::write_file(node + "/c", "c");
  test::write_file(node + "/d", "d");
  test::write_file(home + "/node1/c/somebody's", "not ours");
  Way way(home);
  struct rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const struct rlimit limit{1U << 20U, before.rlim_max};  // stands for a disk that is full
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  way.bring_home(node, {}, {"*"});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, handler);
  CHECK(way.failures.empty());
  CHECK(way.missed ==
        std::vector<std::string>{"--sync: " + home + "/node1/b: File too large",
                                 "--sync: " + home +
                                     "/node1/c is to become something else, but it is a folder with files "
                                     "that hvdrun has not put there; remove it"});
  CHECK(way.sent_bytes < 2 * kTreeWindow);
  CHECK(test::read_file(home + "/node1/a") == "a");
  CHECK(test::read_file(home + "/node1/d") == "d");
  CHECK(way.keeper->summary().starts_with("2 files ("));
  CHECK(std::distance(fs::directory_iterator(home + "/node1"), fs::directory_iterator()) == 3);  // no part is left

  // Where nothing can be kept, the node's files are not told one by one.
  for (int number = 0; number < 30; ++number) {
    test::write_file(node + "/many/" + std::to_string(number), "x");
    test::write_file(home + "/node1/many/" + std::to_string(number) + "/somebody's", "not ours");
  }
  Way other(home);
  other.bring_home(node, {}, {"many"});
  CHECK(other.missed.size() == 10);
  REQUIRE(other.failures.size() == 1);
  CHECK(other.failures.front().ends_with("; neither could 10 files before"));
}

TEST_CASE("a link or folder that cannot take its place is told, and the others come") {
  const test::Folder folder;
  const std::string node = folder.path + "/node";
  const std::string home = folder.path + "/home";
  test::write_file(node + "/last.pt", "new");
  fs::create_symlink("last.pt", node + "/latest");
  test::write_file(home + "/node1/latest/old", "of an earlier job");
  Way way(home);
  way.bring_home(node, {}, {"*"});
  CHECK(way.failures.empty());
  REQUIRE(way.missed.size() == 1);
  CHECK(way.missed.front().find("/node1/latest is to become something else") != std::string::npos);
  CHECK(test::read_file(home + "/node1/last.pt") == "new");
  CHECK(test::read_file(home + "/node1/latest/old") == "of an earlier job");
}

TEST_CASE("two agents of one host bring their results into one folder, each file whole") {
  const test::Folder folder;
  const std::string home = folder.path + "/home";
  Way way(home);
  const auto tell = [&way](int number, AgentMessage type, const std::string& body) {
    REQUIRE(way.keeper->on_message(number, "node1", type, body).ok());
  };
  const auto piece = [](const char* bytes, bool is_end) {
    FilePiece made;
    made.bytes = bytes;
    made.is_end = is_end;
    return FileBytes{{made}}.encode();
  };
  for (int number = 0; number < 2; ++number) {
    TreeEntry entry;
    entry.path = number == 0 ? "a.pt" : "b.pt";
    entry.size = 4;
    entry.mode = 0644;
    tell(number, AgentMessage::kResultList, TreeList{true, {entry}}.encode());
  }
  tell(0, AgentMessage::kResultBytes, piece("aa", false));
  tell(1, AgentMessage::kResultBytes, piece("bb", false));
  tell(0, AgentMessage::kResultBytes, piece("AA", true));
  tell(1, AgentMessage::kResultBytes, piece("BB", true));
  CHECK(way.missed.empty());
  CHECK(test::read_file(home + "/node1/a.pt") == "aaAA");
  CHECK(test::read_file(home + "/node1/b.pt") == "bbBB");
}

TEST_CASE("a result that cannot be read is told, and the others come; what was there before stays until all has come") {
  const test::Folder folder;
  const std::string home = folder.path + "/home";
  test::write_file(home + "/node1/a.pt", "of the last job");
  test::write_file(home + "/node1/b.pt", "of the last job");
  Way way(home);
  const auto tell = [&way](AgentMessage type, const std::string& body) {
    return way.keeper->on_message(0, "node1", type, body);
  };
  const auto file = [](const std::string& path, std::uint64_t size, std::uint32_t mode = 0644) {
    TreeEntry entry;
    entry.path = path;
    entry.size = size;
    entry.mode = mode;
    return entry;
  };
  const TreeList list{true, {file("a.pt", 4), file("b.pt", 4), file("c.pt", 4)}};
  REQUIRE(tell(AgentMessage::kResultList, list.encode()).ok());
  FilePiece missing;
  missing.is_end = missing.is_unreadable = true;
  missing.bytes = "cannot read /x/a.pt: Permission denied";
  FilePiece whole;
  whole.is_end = true;
  whole.bytes = "new!";
  FilePiece part;
  part.bytes = "ne";
  REQUIRE(tell(AgentMessage::kResultBytes, FileBytes{{missing, whole, part}}.encode()).ok());
  CHECK(way.missed == std::vector<std::string>{"--sync-back: cannot read /x/a.pt: Permission denied"});
  CHECK(way.keeper->summary() == "1 file (6 bytes) of 1 node is in " + home);
  CHECK(test::read_file(home + "/node1/a.pt") == "of the last job");
  CHECK(test::read_file(home + "/node1/b.pt") == "new!");
  CHECK_FALSE(fs::exists(home + "/node1/c.pt"));
  way.keeper.reset();  // the node is lost
  CHECK_FALSE(fs::exists(home + "/node1/c.pt"));
  CHECK(std::distance(fs::directory_iterator(home + "/node1"), fs::directory_iterator()) == 2);

  Way other(home);
  REQUIRE(
      other.keeper->on_message(0, "node1", AgentMessage::kResultList, TreeList{true, {file("a.pt", 3)}}.encode()).ok());
  CHECK_FALSE(other.keeper->on_message(0, "node1", AgentMessage::kResultBytes, FileBytes{{whole}}.encode()).ok());
  CHECK_FALSE(TreeList::decode(TreeList{true, {file("s", 1, 04755)}}.encode()).ok());
}

}  // namespace hvd::launch::results_test
