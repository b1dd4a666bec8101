// launcher/tree: files that change while a folder is brought, hosts that come later, an agent that is killed, and a
// list of many files.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/tree/tree_contents.h"
#include "tests/unit/launcher/tree/tree_nodes.h"

namespace hvd::launch::tree_changes_test {

using test::contents;
using test::Scene;
using test::TreeNodes;

namespace fs = std::filesystem;

namespace {

// Makes parts of files in this folder look as if they were written hours ago.
void make_parts_old(const std::string& folder) {
  for (const auto& item : fs::directory_iterator(folder)) {
    if (item.path().extension() == ".part") {
      fs::last_write_time(item, fs::file_time_type::clock::now() - std::chrono::hours(2));
    }
  }
}

}  // namespace

TEST_CASE("the list travels a window at a time, and all nodes get the same parts") {
  Tree tree;
  tree.name = "many";
  for (int number = 10'000; number < 34'000; ++number) {
    TreeEntry entry;
    entry.path = std::to_string(number) + std::string(500, 'p');
    tree.entries.push_back(entry);
    tree.proofs.emplace_back();
  }
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  std::map<int, std::vector<std::shared_ptr<const std::string>>> sent;
  TreeSenders senders(*loop, tree,
                      {[&sent](int node, AgentMessage type, auto frame) {
                         if (type == AgentMessage::kTreeList) {
                           sent[node].push_back(std::move(frame));
                         }
                       },
                       [](int) {}, [](int, const Error&) {}, [](int) { return std::vector<std::string>(); },
                       [](int, const std::string&, std::size_t) {}, [](int, const std::string&) {},
                       [](int, int, const std::string&) {}});
  const auto turn = [&loop] {
    for (int count = 0; count < 20; ++count) {
      REQUIRE(loop->turn(Deadline::after(Duration::zero())).ok());
    }
  };
  for (const int node : {0, 1}) {
    senders.offer(node);
    REQUIRE(senders.on_message(node, AgentMessage::kAskTree, "").ok());
  }
  turn();
  CHECK(sent[0].size() == 2);  // each of 2 MiB, and 4 MiB may be under way
  CHECK(sent[1] == sent[0]);
  for (int part = 0; part < 6; ++part) {
    REQUIRE(senders.on_message(0, AgentMessage::kFileCredit, FileCredit{2U << 20U}.encode()).ok());
    turn();
  }
  CHECK(sent[0].size() == 6);
  CHECK(sent[1].size() == 2);

  TreeContents contents(tree);
  auto wanted = contents.wanted({1, 2}).value();
  CHECK(contents.wanted({1, 2}).value() == wanted);
  const std::weak_ptr<const std::vector<std::uint32_t>> seen = wanted;
  wanted = nullptr;
  CHECK(seen.expired());  // no node wants it any more
}

TEST_CASE("agents of one job that share a home write once, though a file changes; the next job has it as it is then") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", std::string(1U << 20U, 'a'));
  test::write_file(from + "/log", "begun");
  auto tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  test::write_file(from + "/log", "another");
  TreeNodes nodes({scene.home(), scene.home(), scene.home()});
  nodes.bring(std::move(tree).value());
  CHECK(nodes.failed.empty());
  CHECK(nodes.totals().files == 2);
  const std::string place = nodes.path(0);
  CHECK(nodes.path(1) == place);
  CHECK(nodes.path(2) == place);
  nodes.join(scene.home());
  CHECK(nodes.failed.empty());
  CHECK(nodes.path(3) == place);
  TreeNodes other({scene.home()});
  other.bring(from);
  CHECK(other.path() != place);
  CHECK(contents(other.path()) == contents(from));
  nodes.end();
  other.end();
  other.bring(from);
  CHECK(contents(other.path()) == contents(from));
}

TEST_CASE("a part of a file that is not old stays: where locks reach no other host, one may be writing it") {
  const Scene scene;
  test::write_file(scene.source() + "/train.py", "x");
  const auto bring = [&scene] {
    TreeNodes nodes({scene.home()});
    nodes.bring(scene.source());
    return fs::path(nodes.path()).parent_path().string();
  };
  const std::string at = bring();
  const std::string part = at + "/0123.part";
  test::write_file(part, "not all of it");
  CHECK((bring() == at && fs::exists(part)));
  make_parts_old(at);
  CHECK((bring() == at && !fs::exists(part)));
}

TEST_CASE("what an agent had copied when it was killed is used by the next, or removed") {
  const Scene scene;
  const std::string& from = scene.source();
  constexpr int kFiles = 30;
  for (int number = 10; number < 10 + kFiles; ++number) {
    test::write_file(from + "/deep/" + std::to_string(number), std::string(300'000, 'a') + std::to_string(number));
  }
  fs::create_symlink("deep", from + "/link");
  fs::create_directory(from + "/empty");
  const std::string home = scene.home();
  const std::string cache = home + "/.cache/hvdrun/folders/";
  const pid_t killed = ::fork();
  if (killed == 0) {
    TreeNodes nodes({home});
    nodes.at_each_turn = [&] {
      for (const auto& item : fs::directory_iterator(cache)) {
        const std::string files = item.path().string() + "/files/deep/";
        if (fs::exists(files + "15") && !fs::exists(files + "39")) {
          ::_exit(7);  // no destructor runs, as with a SIGKILL
        }
      }
    };
    fs::create_directories(cache);
    nodes.bring(from);
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(killed, &status, 0) == killed);
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  // A file of a rank's that was to come, and did not, is not taken for what had come.
  const std::string at = fs::directory_iterator(cache)->path().string();
  test::write_file(at + "/files/deep/39", "of a rank");
  CHECK(std::distance(fs::directory_iterator(at), fs::directory_iterator()) == 4);  // with a part
  make_parts_old(at);
  fs::remove(from + "/deep/10");
  fs::remove(from + "/deep/39");
  fs::remove(from + "/link");
  fs::remove(from + "/empty");
  TreeNodes nodes({home});
  nodes.bring(from);
  CHECK(nodes.failed.empty());
  CHECK(nodes.path() == at + "/files");
  CHECK(nodes.totals().files <= kFiles - 2 - 5);
  CHECK(nodes.totals().removed == 2);
  CHECK(std::distance(fs::directory_iterator(at), fs::directory_iterator()) == 3);
  CHECK(test::read_file(at + "/files/deep/39") == "of a rank");
  fs::remove(at + "/files/deep/39");
  CHECK(contents(nodes.path()) == contents(from));
}

TEST_CASE("a file that changes or shrinks while it is copied does no harm, and travels again next time") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/log", std::string(100, 'l'));
  test::write_file(from + "/other", "x");
  TreeNodes nodes({scene.home()});
  auto tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  test::write_file(from + "/log", "short");
  nodes.bring(std::move(tree).value());
  CHECK(nodes.failed.empty());
  CHECK(test::read_file(nodes.path() + "/log") == "short");
  CHECK(nodes.changed == std::map<int, std::string>{{0, from + "/log"}});
  nodes.bring(from);
  CHECK(nodes.totals().files == 1);
  CHECK(contents(nodes.path()) == contents(from));
  tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  test::write_file(from + "/log", std::string(1000, 'm'));
  Tree changed = std::move(tree).value();
  changed.entries[0].hash = {1};
  changed.digest = digest_of(changed.entries);
  nodes.bring(std::move(changed));
  CHECK(test::read_file(nodes.path() + "/log") == "mmmmm");  // no more than it had
}

TEST_CASE("of the files that have changed the first is named, and how many others there are") {
  const Scene scene;
  const std::string& from = scene.source();
  for (const char* const name : {"/a", "/b", "/c", "/d"}) {
    test::write_file(from + name, "one");
  }
  TreeNodes nodes({scene.home(0)});
  auto tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  for (const char* const name : {"/b", "/c", "/d"}) {
    test::write_file(from + name, "two");
  }
  nodes.bring(std::move(tree).value());
  CHECK(nodes.failed.empty());
  CHECK(nodes.changed == std::map<int, std::string>{{0, from + "/b and 2"}});
  nodes.join(scene.home(1));
  CHECK(nodes.failed[1] == "--sync: " + from +
                               "/b and 2 other files have changed since the job began, so that this host would have "
                               "other ones than the others");
}

TEST_CASE("a host that comes later has what the others have, or is told which file has changed") {
  const Scene scene;
  const std::string& from = scene.source();
  // The last two have something from before. So each wants other files, and no read of the launcher's serves two.
  test::write_file(from + "/other", "x");
  TreeNodes({scene.home(3), scene.home(4)}).bring(from);
  test::write_file(from + "/log", "begun");
  TreeNodes({scene.home(4)}).bring(from);
  test::write_file(from + "/train.py", "one");
  TreeNodes nodes({scene.home(0), scene.home(1)});
  nodes.bring(from);
  CHECK(nodes.changed.empty());
  // What is only added at the end of a file is not what the list says.
  test::write_file(from + "/log", "begun and gone on");
  nodes.join(scene.home(2));
  CHECK(nodes.failed.empty());
  CHECK(contents(nodes.path(2)) == contents(nodes.path(0)));
  // The size and the times are as they were.
  const auto time = fs::last_write_time(from + "/train.py");
  test::write_file(from + "/train.py", "two");
  fs::last_write_time(from + "/train.py", time);
  nodes.join(scene.home(3));
  CHECK(nodes.failed[3] == "--sync: " + from +
                               "/train.py has changed since the job began, so that this host would have another one "
                               "than the others");
  fs::remove(from + "/train.py");
  nodes.join(scene.home(4));
  CHECK(nodes.failed[4] == nodes.failed[3]);
}

TEST_CASE("a file that is removed while it is copied is removed there too, and the others come") {
  const Scene scene;
  const std::string& from = scene.source();
  for (const char* const name : {"/a", "/checkpoint", "/folder/file", "/link", "/z"}) {
    test::write_file(from + name, "before");
  }
  const auto change = [&from](const std::string& text) {
    for (const char* const name : {"/a", "/folder/file", "/link", "/z"}) {
      test::write_file(from + name, text);
    }
    test::write_file(from + "/checkpoint", std::string(1U << 20U, text.front()));
  };
  // Hosts that have the files of an earlier job, and one that has none; the third gets its files from another host.
  TreeNodes nodes({scene.home(0), scene.home(1), scene.home(2)});
  TreeNodes({scene.home(0), scene.home(1)}).bring(from);
  for (const bool is_half_sent : {false, true}) {
    CAPTURE(is_half_sent);
    change(is_half_sent ? "half" : "none");
    auto tree = scan_tree(from, {});
    REQUIRE(tree.ok());
    const auto remove = [&from] {
      fs::remove(from + "/checkpoint");
      fs::remove_all(from + "/folder");
      test::write_file(from + "/folder", "a file now");
      fs::remove(from + "/link");
      fs::create_symlink("z", from + "/link");
    };
    if (!is_half_sent) {
      remove();
    }
    nodes.at_each_turn = [&] {
      if (is_half_sent && nodes.counts[AgentMessage::kFileBytes] > 1 && fs::exists(from + "/checkpoint")) {
        remove();
      }
    };
    nodes.bring(std::move(tree).value());
    CHECK(nodes.failed.empty());
    REQUIRE(nodes.changed.size() == 1);
    CHECK(nodes.changed.begin()->second == from + "/checkpoint and 2");
    for (const int node : {0, 1, 2}) {
      CAPTURE(node);
      const std::string there = nodes.path(node);
      CHECK(test::read_file(there + "/a") == test::read_file(from + "/a"));
      CHECK(test::read_file(there + "/z") == test::read_file(from + "/z"));
      CHECK(fs::is_empty(there + "/folder"));
      CHECK(contents(there).size() == 3);
    }
    nodes.at_each_turn = nullptr;
    fs::remove(from + "/link");
    fs::remove(from + "/folder");
  }
  change("last");
  nodes.bring(from);
  CHECK(nodes.changed.empty());
  for (const int node : {0, 1, 2}) {
    CHECK(contents(nodes.path(node)) == contents(from));
  }
}

}  // namespace hvd::launch::tree_changes_test
