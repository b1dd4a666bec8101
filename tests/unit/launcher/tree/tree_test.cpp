// launcher/tree: a folder arrives on its nodes, whatever was there. What happens when files change, or an agent ends,
// on the way is in tree_changes_test.cpp.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/io/socket.h"
#include "tests/unit/launcher/tree/tree_nodes.h"

namespace hvd::launch::tree_test {

using test::contents;
using test::Scene;
using test::TreeNodes;

namespace fs = std::filesystem;

TEST_CASE("a folder arrives with files, folders, links and rights, empty ones too, and the second time costs a word") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/train.py", "print(1)\n");
  test::write_file(from + "/data/big.bin", std::string(3U << 20U, 'x'));
  test::write_file(from + "/data/none", "");
  test::write_file(from + "/tool.sh", "#!/bin/sh\n");
  ::chmod((from + "/tool.sh").c_str(), 0755);
  ::chmod((from + "/data/none").c_str(), 0444);
  fs::create_directory(from + "/empty");
  ::chmod((from + "/empty").c_str(), 0750);
  fs::create_symlink("train.py", from + "/link");
  fs::create_symlink("/nowhere/at all", from + "/data/dangling");
  REQUIRE(::mkfifo((from + "/pipe").c_str(), 0600) == 0);

  TreeNodes nodes({scene.home(0), scene.home(1)});
  nodes.bring(from);
  CHECK(nodes.failed.empty());
  fs::remove(from + "/pipe");  // what is no file stays at home
  CHECK(contents(nodes.path(0)) == contents(from));
  CHECK(contents(nodes.path(1)) == contents(from));
  CHECK(nodes.totals().nodes == 2);
  CHECK(nodes.totals().files == 8);
  CHECK(fs::last_write_time(nodes.path() + "/train.py") == fs::last_write_time(from + "/train.py"));

  nodes.bring(from);
  CHECK(nodes.counts == std::map<AgentMessage, int>{{AgentMessage::kOfferTree, 2}, {AgentMessage::kTreeHere, 2}});
  CHECK(nodes.totals().nodes == 0);
}

TEST_CASE("only what has changed travels, what is gone goes, and what ranks have made stays") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", "one");
  test::write_file(from + "/b", "two");
  test::write_file(from + "/old/deep/c", "three");
  test::write_file(from + "/kept/d", "four");
  fs::create_symlink("a", from + "/l");
  TreeNodes nodes({scene.home()});
  nodes.bring(from);
  const std::string at = nodes.path();
  test::write_file(at + "/out/model.pt", "weights");
  test::write_file(at + "/kept/log", "of a rank");
  test::write_file(at + "/b", "a rank has written here");

  test::write_file(from + "/a", "another");
  fs::remove_all(from + "/old");
  fs::remove_all(from + "/kept");
  fs::remove(from + "/l");
  fs::create_directory(from + "/l");
  test::write_file(from + "/new", "five");
  nodes.bring(from);
  CHECK(nodes.path() == at);
  CHECK(nodes.totals().files == 3);    // a, b, new
  CHECK(nodes.totals().removed == 2);  // c, d
  CHECK(contents(at) == std::vector<std::string>{"a 644 another", "b 644 two", "kept/ 755", "kept/log 644 of a rank",
                                                 "l/ 755", "new 644 five", "out/ 755", "out/model.pt 644 weights"});

  // The rights alone: nothing travels.
  ::chmod((from + "/a").c_str(), 0600);
  nodes.bring(from);
  CHECK(nodes.totals().files == 0);
  CHECK(contents(at).front() == "a 600 another");
}

TEST_CASE("nothing is written through a link that a rank has put there") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/sub/a", "one");
  TreeNodes nodes({scene.home()});
  nodes.bring(from);
  const std::string elsewhere = scene.folder.path + "/elsewhere";
  test::write_file(elsewhere + "/a", "not yours");
  fs::remove_all(nodes.path() + "/sub");
  fs::create_directory_symlink(elsewhere, nodes.path() + "/sub");
  test::write_file(from + "/sub/a", "two");
  test::write_file(from + "/sub/b", "three");
  nodes.bring(from);
  CHECK(nodes.failed.empty());
  CHECK(contents(elsewhere) == std::vector<std::string>{"a 644 not yours"});
  CHECK(contents(nodes.path()) == std::vector<std::string>{"sub/ 755", "sub/a 644 two", "sub/b 644 three"});
}

TEST_CASE("a folder that another job uses is not changed: the next one is taken") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", "one");
  TreeNodes first({scene.home()});
  TreeNodes second({scene.home()});
  TreeNodes third({scene.home()});
  first.bring(from);
  second.bring(from);
  CHECK(second.path() == first.path());
  CHECK(second.totals().nodes == 0);
  test::write_file(from + "/a", "two");
  third.bring(from);
  CHECK(third.path() != first.path());
  CHECK(test::read_file(third.path() + "/a") == "two");
  CHECK(test::read_file(first.path() + "/a") == "one");
  // A file that a rank has changed is not what was offered, and cannot be mended while the other job runs.
  test::write_file(first.path() + "/a", "a rank's");
  second.end();
  test::write_file(from + "/a", "one");
  second.bring(from);
  CHECK(second.path() != first.path());
  CHECK(second.path() != third.path());
  CHECK(test::read_file(second.path() + "/a") == "one");
  const std::string place = first.path();
  first.end();
  second.end();
  third.end();
  first.bring(from);
  CHECK(first.path() == place);
  CHECK(test::read_file(place + "/a") == "one");
}

TEST_CASE("a cache folder that is named and not there yet is made, as the agent's is") {
  const Scene scene;
  const std::string cache = scene.home() + "/not/there";
  const auto place = tree_place({"XDG_CACHE_HOME=" + cache});
  REQUIRE_MESSAGE(place.ok(), place.error().message());
  CHECK(place.value() == cache + "/hvdrun/folders");
  CHECK(std::filesystem::is_directory(place.value()));
}

TEST_CASE("who waits for the copy of another job says so, and gets the folder after it") {
  const Scene scene;
  test::write_file(scene.source() + "/a", "one");
  const std::string home = scene.home();
  const std::string place = tree_place({"HOME=" + home}).value();
  const std::string name = scan_tree(scene.source(), {}).value().name;
  std::optional<TreeFolder> other = TreeFolder::take({place, name, {}, "pid 7 on node9 (job ab)"}).value().folder;
  REQUIRE(other);
  TreeNodes nodes({home, home});
  nodes.at_each_turn = [&] {
    nodes.clock.jumped += std::chrono::milliseconds(20);
    if (other && !nodes.waits.empty()) {
      CHECK(nodes.progress() == "waiting for another job, which copies the same folder there");
      other.reset();
    }
  };
  nodes.bring(scene.source());
  CHECK_FALSE(other);
  // Once in all, though both wait.
  CHECK(nodes.waits == std::vector<std::string>{"--sync: waits, for ten minutes at most, until pid 7 on node9 (job "
                                                "ab) has copied into " +
                                                place + "/" + name});
  CHECK(nodes.counts[AgentMessage::kFileCredit] >= 10);
  CHECK(test::read_file(nodes.path() + "/a") == "one");
  CHECK(nodes.progress().empty());
}

TEST_CASE("agents of one job that share a home write once") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", std::string(1U << 20U, 'a'));
  test::write_file(from + "/b", "two");
  TreeNodes nodes({scene.home(), scene.home(), scene.home()});
  nodes.bring(from);
  CHECK(nodes.failed.empty());
  CHECK(nodes.totals().files == 2);
  CHECK(nodes.path(0) == nodes.path(1));
  CHECK(nodes.path(0) == nodes.path(2));
  CHECK(contents(nodes.path(2)) == contents(from));
}

TEST_CASE("what cannot be is told once, and names the place") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a/b", "one");
  TreeNodes nodes({scene.home()});
  nodes.bring(from);
  test::write_file(nodes.path() + "/a/of a rank", "x");
  fs::remove_all(from + "/a");
  test::write_file(from + "/a", "now a file");
  const std::string at = nodes.path();
  nodes.bring(from);
  CHECK(nodes.failed[0] == "--sync: " + at +
                               "/a is to become something else, but it is a folder with files that hvdrun "
                               "has not put there; remove it");
  // The next one is not held up by what is left of this.
  fs::remove_all(at + "/a");
  nodes.bring(from);
  CHECK(contents(nodes.path()) == contents(from));

  auto tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  test::write_file(from + "/a", "changed");
  tree = scan_tree(from, {});
  fs::remove(from + "/a");
  const Fd socket = listen_unix(from + "/a").value();  // root can read every file
  nodes.bring(std::move(tree).value());
  CHECK(nodes.failed[0] == "--sync: cannot read " + from + "/a: No such device or address");
  fs::remove(from + "/a");
  CHECK_FALSE(scan_tree(from + "/nowhere", {}).ok());
  test::write_file(from + "/file", "");
  CHECK(scan_tree(from + "/file", {}).error().message() == "--sync " + from + "/file: this is not a folder");
}

TEST_CASE("a home that is reached by a link is a home, and a time before 1970 is one") {
  const Scene scene;
  test::write_file(scene.source() + "/old", "x");
  const struct timespec times[] = {{0, UTIME_OMIT}, {-5, 250'000'000}};
  REQUIRE(::utimensat(AT_FDCWD, (scene.source() + "/old").c_str(), times, 0) == 0);
  fs::create_symlink(scene.source(), scene.folder.path + "/link");
  ScanOptions options;
  options.environment = {"HOME=" + scene.folder.path + "/link"};
  CHECK_FALSE(scan_tree(scene.source(), options).ok());
  TreeNodes nodes({scene.home()});
  nodes.bring(scene.source());
  CHECK(nodes.failed.empty());
  struct stat status{};
  REQUIRE(::stat((nodes.path() + "/old").c_str(), &status) == 0);
  CHECK((status.st_mtim.tv_sec == -5 && status.st_mtim.tv_nsec == 250'000'000));
}

TEST_CASE("many nodes get most of the files from each other, and a change that is under way too") {
  const Scene scene;
  const std::string& from = scene.source();
  const auto fill = [&from](char first) {
    for (int number = 0; number < 200; ++number) {
      test::write_file(from + "/part" + std::to_string(number % 7) + "/file" + std::to_string(number),
                       std::string(20'000, static_cast<char>(first + number % 13)));
    }
  };
  fill('a');
  std::vector<std::string> homes;
  for (int number = 0; number < 9; ++number) {
    homes.push_back(scene.home(number));
  }
  TreeNodes nodes(homes);
  nodes.bring(from);
  CHECK(nodes.failed.empty());
  CHECK(nodes.counts[AgentMessage::kFetchFiles] == 7);
  CHECK(nodes.counts[AgentMessage::kWantFiles] == 9);
  CHECK(nodes.counts[AgentMessage::kFileBytes] < 2 * 20);
  for (int number = 0; number < 9; ++number) {
    CHECK(contents(nodes.path(number)) == contents(from));
  }
  nodes.bring(from);
  CHECK(nodes.totals().nodes == 0);

  // Files that have changed since the list was made are no longer those of the list, whoever gives them.
  fill('b');
  auto tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  fill('c');
  nodes.bring(std::move(tree).value());
  CHECK(nodes.changed.size() == 1);  // the same file of all nodes
  CHECK(nodes.counts[AgentMessage::kFetchFiles] == 7);
  nodes.bring(from);
  CHECK(nodes.totals().nodes == 9);
  for (int number = 0; number < 9; ++number) {
    CHECK(contents(nodes.path(number)) == contents(from));
  }
}

TEST_CASE("who cannot reach its source gets the files from the launcher") {
  const Scene scene;
  const std::string& from = scene.source();
  TreeNodes nodes({scene.home(0), scene.home(1), scene.home(2), scene.home(3)});
  char content = 'a';
  for (const auto& addresses : {std::vector<std::string>{"::1", "nonsense"}, std::vector<std::string>()}) {
    nodes.addresses = addresses;
    test::write_file(from + "/a", std::string(3U << 20U, content++));
    nodes.bring(from);
    CHECK(nodes.failed.empty());
    CHECK(nodes.counts[AgentMessage::kFetchFiles] == 2);
    CHECK(nodes.counts[AgentMessage::kWantFiles] == 6);
    REQUIRE(nodes.fallbacks.size() == 2);
    CHECK((nodes.fallbacks.begin()->second.find("nonsense") != std::string::npos) == !addresses.empty());
    for (int number = 0; number < 4; ++number) {
      CHECK(contents(nodes.path(number)) == contents(from));
    }
  }
}

TEST_CASE("who does not prove the job's secret gets no files, and keeps nobody from getting them") {
  const Scene scene;
  test::write_file(scene.source() + "/a", "content");
  const auto tree = scan_tree(scene.source(), {});
  REQUIRE(tree.ok());
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  const auto list = std::make_shared<const std::vector<TreeEntry>>(tree.value().entries);
  const auto server =
      PeerServer::listen(*loop, JobSecret{1}, {scene.source(), list, [] { return std::size_t{1}; }}).value();
  const std::string address = "127.0.0.1:" + std::to_string(server->port());
  // One says nothing, one talks nonsense, and one has another secret.
  const auto silent = connect_tcp(SocketAddress::parse(address).value(), Deadline::after(std::chrono::seconds(10)));
  const auto rude = connect_tcp(SocketAddress::parse(address).value(), Deadline::after(std::chrono::seconds(10)));
  REQUIRE((silent.ok() && rude.ok()));
  REQUIRE(
      send_all(rude.value().get(), as_bytes(std::string(1000, 'x')), Deadline::after(std::chrono::seconds(10))).ok());
  const auto fetch = [&](const JobSecret& secret, std::vector<std::uint32_t> wanted) {
    std::string outcome;
    PeerFetch::Sink sink;
    sink.on_bytes = [&outcome](std::string_view body) -> Result<void> {
      outcome = "got ";
      outcome += FileBytes::decode(body).value().pieces.front().bytes;
      return {};
    };
    sink.on_failed = [&outcome](const Error& why) { outcome = why.message(); };
    const PeerFetch one(*loop, secret, {address}, std::move(wanted), std::move(sink));
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (outcome.empty() && !deadline.has_passed()) {
      REQUIRE(loop->turn(deadline).ok());
    }
    return outcome;
  };
  CHECK(fetch(JobSecret{2}, {0}) == address + ": it has closed the connection");
  CHECK(fetch(JobSecret{1}, {0}) == "got content");
  // What is not in the list, or is no file, ends the conversation.
  CHECK(fetch(JobSecret{1}, {1}).find("got") == std::string::npos);
  CHECK(fetch(JobSecret{1}, {0}) == "got content");
}

TEST_CASE("what arrives while somebody calls is passed on from memory") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  TreeEntry entry;
  entry.path = "a";
  entry.size = 7;
  const auto list = std::make_shared<const std::vector<TreeEntry>>(1, entry);
  // There is no file that could be read.
  const auto server =
      PeerServer::listen(*loop, JobSecret{1}, {"/nowhere", list, [] { return std::size_t{0}; }}).value();
  std::string got;
  PeerFetch::Sink sink;
  sink.on_bytes = [&got](std::string_view body) -> Result<void> {
    got += FileBytes::decode(body).value().pieces.front().bytes;
    return {};
  };
  sink.on_failed = [](const Error& why) { FAIL(why.message()); };
  const PeerFetch fetch(*loop, JobSecret{1}, {"127.0.0.1:" + std::to_string(server->port())}, {0}, std::move(sink));
  FilePiece first;
  first.bytes = "con";
  FilePiece second;
  second.is_end = true;
  second.bytes = "tent";
  const std::vector<std::uint32_t> files{0};
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (got != "content" && !deadline.has_passed()) {
    // Nothing is kept before the caller is there; then each is passed on once.
    server->on_arrived(FileBytes{{first}}.encode(), files, 0, 3);
    server->on_arrived(FileBytes{{second}}.encode(), files, 3, 0);
    REQUIRE(loop->turn(deadline).ok());
  }
  CHECK(got == "content");
}

TEST_CASE("random changes of a folder arrive, whatever ranks do in between") {
  const Scene scene;
  const std::string& from = scene.source();
  TreeNodes nodes({scene.home(0), scene.home(1)});
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same each time
  const auto below = [&random](unsigned limit) { return static_cast<unsigned>(random() % limit); };
  const auto some_path = [&] {
    std::string path;
    for (unsigned depth = 0; depth <= below(3); ++depth) {
      path += "/" + std::string(1, static_cast<char>('a' + below(3)));
    }
    return path;
  };
  const auto change = [&](const std::string& root) {
    const std::string path = root + some_path();
    std::error_code ignored;
    switch (below(6)) {
      case 0:
        fs::remove_all(path, ignored);
        break;
      case 1:
        fs::create_directories(path, ignored);
        break;
      case 2:
        fs::create_directories(fs::path(path).parent_path(), ignored);
        fs::create_symlink("/tmp", path, ignored);
        break;
      case 3:
        if (fs::is_regular_file(fs::symlink_status(path, ignored))) {
          ::chmod(path.c_str(), below(2) == 0 ? 0640 : 0755);
        }
        break;
      default:
        fs::create_directories(fs::path(path).parent_path(), ignored);
        if (!fs::is_symlink(fs::symlink_status(path, ignored)) && fs::weakly_canonical(path).string() == path) {
          std::ofstream(path) << std::string(below(1000), static_cast<char>('a' + below(26)));
        }
    }
  };
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    for (unsigned count = below(6); count > 0; --count) {
      change(from);
    }
    nodes.bring(from);
    REQUIRE(nodes.failed.empty());
    REQUIRE(contents(nodes.path(0)) == contents(from));
    REQUIRE(contents(nodes.path(1)) == contents(from));
    if (below(3) == 0) {
      // A rank destroys what is there; only folders with files of its own could stand in the way.
      std::error_code ignored;
      fs::remove_all(nodes.path(1) + some_path(), ignored);
    }
  }
}

TEST_CASE("whoever speaks out of turn is refused") {
  const Scene scene;
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  TreeReceiver agent(*loop, {"HOME=" + scene.home()}, TreeReceiver::Job(), [](AgentMessage, std::string_view) {});
  CHECK_FALSE(agent.on_message(AgentMessage::kTreeList, TreeList{true, {}}.encode()).ok());
  CHECK_FALSE(agent.on_message(AgentMessage::kFileBytes, FileBytes{}.encode()).ok());
  CHECK_FALSE(agent.on_message(AgentMessage::kAskTree, "").ok());
  for (const char* const name : {"", ".", "..", "a/b", "/a"}) {
    CHECK_FALSE(agent.on_message(AgentMessage::kOfferTree, TreeOffer{name, {}}.encode()).ok());
  }
  CHECK(agent.on_message(AgentMessage::kOfferTree, TreeOffer{"folder", {1}}.encode()).ok());
  CHECK_FALSE(agent.on_message(AgentMessage::kOfferTree, TreeOffer{"folder", {1}}.encode()).ok());
  for (const char* const path : {"../a", "/etc/x", "a//b", "a/./b", "a/..", ""}) {
    TreeEntry entry;
    entry.path = path;
    CHECK_FALSE(agent.on_message(AgentMessage::kTreeList, TreeList{false, {entry}}.encode()).ok());
  }
  Tree tree;
  tree.name = "folder";
  TreeSenders senders(*loop, tree,
                      {[](int, AgentMessage, auto) {}, [](int) {}, [](int, const Error&) {},
                       [](int) { return std::vector<std::string>(); }, [](int, const std::string&, std::size_t) {},
                       [](int, const std::string&) {}, [](int, int, const std::string&) {}});
  CHECK_FALSE(senders.on_message(0, AgentMessage::kAskTree, "").ok());
  senders.offer(0);
  CHECK(senders.on_message(0, AgentMessage::kAskTree, "").ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kAskTree, "").ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kWantFiles, WantedFiles{{0}}.encode()).ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kTreeHere, TreeHere{}.encode()).ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kOfferTree, "").ok());
}

}  // namespace hvd::launch::tree_test
