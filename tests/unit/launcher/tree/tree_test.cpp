// launcher/tree: both sides of --sync, in memory; the folders are real.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/tree/tree_receiver.h"
#include "launcher/tree/tree_senders.h"
#include "runtime/base/clock.h"
#include "runtime/io/socket.h"
#include "tests/unit/launcher/folder.h"

using namespace hvd;          // NOLINT(google-build-using-namespace)
using namespace hvd::launch;  // NOLINT(google-build-using-namespace)

namespace fs = std::filesystem;

namespace {

// Every path below a folder with what it is: "sub/ 755", "link -> target", "file 644 content".
std::vector<std::string> contents(const std::string& root) {
  std::vector<std::string> found;
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    const std::string path = item.path().lexically_relative(root).string();
    struct stat status{};
    REQUIRE(::lstat(item.path().c_str(), &status) == 0);
    const std::string mode = " " + std::to_string((status.st_mode >> 6U) & 7U) +
                             std::to_string((status.st_mode >> 3U) & 7U) + std::to_string(status.st_mode & 7U);
    if (item.is_symlink()) {
      found.push_back(path + " -> " + fs::read_symlink(item.path()).string());
    } else if (item.is_directory()) {
      found.push_back(path + "/" + mode);
    } else {
      found.push_back(path + mode + " " + test::read_file(item.path().string()));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// One launcher and its nodes, each with a home of its own. Messages are carried one at a time, and counted.
class Nodes {
 public:
  explicit Nodes(std::vector<std::string> homes) : homes_(std::move(homes)) {
    loop_ = EventLoop::create(clock_).value();
  }

  void bring(const std::string& folder, const ScanOptions& options = {}) {
    auto tree = scan_tree(folder, options);
    REQUIRE_MESSAGE(tree.ok(), (tree.ok() ? "" : tree.error().message()));
    bring(std::move(tree).value());
  }

  void bring(Tree tree) {
    end();
    counts.clear();
    failed.clear();
    changed.clear();
    fallbacks.clear();
    TreeSenders::Sink sink;
    sink.send = [this](int node, AgentMessage type, const std::shared_ptr<const std::string>& frame) {
      ++counts[type];
      FrameDecoder decoder(kAgentFrames);
      decoder.feed(as_bytes(*frame));
      const auto decoded = decoder.next();
      REQUIRE(decoded.ok());
      to_node_.emplace_back(node, *decoded.value());
    };
    sink.on_here = [this](int node) { here.push_back(node); };
    sink.on_failed = [this](int node, const Error& why) { failed[node] = why.message(); };
    sink.addresses_of = [this](int) { return addresses; };
    sink.on_changed = [this](int node, const std::string& path) { changed[node] = path; };
    sink.on_fallback = [this](int node, int, const std::string& why) { fallbacks[node] = why; };
    senders_ = std::make_unique<TreeSenders>(*loop_, std::move(tree), std::move(sink));
    ++job_;
    for (const std::string& home : homes_) {
      offer(home);
    }
    carry([this] { return here.size() + failed.size() == homes_.size(); });
  }

  // A host that comes when the ranks of the others run.
  void join(const std::string& home) {
    senders_->stop_sharing();
    offer(home);
    carry([this] { return here.size() + failed.size() == agents_.size(); });
  }

  // Carries messages until `is_over`, or until there are none and no timer is due.
  void carry(const std::function<bool()>& is_over) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(100));
    while (!is_over()) {
      REQUIRE(!deadline.has_passed());
      if (at_each_turn) {
        at_each_turn();
      }
      if (!to_node_.empty()) {
        const auto [node, frame] = std::move(to_node_.front());
        to_node_.pop_front();
        REQUIRE(agents_[static_cast<std::size_t>(node)]
                    ->on_message(static_cast<AgentMessage>(frame.type), frame.body)
                    .ok());
      } else if (!to_launcher_.empty()) {
        const auto [node, type, body] = std::move(to_launcher_.front());
        to_launcher_.pop_front();
        REQUIRE(senders_->on_message(node, type, body).ok());
      } else {
        REQUIRE(loop_->turn(deadline).ok());
      }
    }
  }

  void end() {
    agents_.clear();
    senders_.reset();
    to_node_.clear();
    to_launcher_.clear();
    here.clear();
  }

  [[nodiscard]] const std::string& path(int node = 0) const { return senders_->path_on(node); }
  [[nodiscard]] std::string progress(int node = 0) const { return senders_->progress_of(node); }
  [[nodiscard]] const TreeSenders::Totals& totals() const { return senders_->totals(); }

  std::function<void()> at_each_turn;
  std::map<AgentMessage, int> counts;
  std::vector<int> here;
  std::map<int, std::string> failed;
  std::map<int, std::string> changed;
  std::map<int, std::string> fallbacks;
  std::vector<std::string> addresses{"127.0.0.1"};

 private:
  struct Word {
    int node;
    AgentMessage type;
    std::string body;
  };

  void offer(const std::string& home) {
    const int node = static_cast<int>(agents_.size());
    agents_.push_back(std::make_unique<TreeReceiver>(*loop_, std::vector<std::string>{"HOME=" + home}, JobSecret{job_},
                                                     [this, node](AgentMessage type, std::string_view body) {
                                                       ++counts[type];
                                                       to_launcher_.push_back({node, type, std::string(body)});
                                                     }));
    senders_->offer(node);
  }

  std::uint8_t job_ = 0;
  const SteadyClock clock_;
  const std::vector<std::string> homes_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<TreeSenders> senders_;
  std::vector<std::unique_ptr<TreeReceiver>> agents_;
  std::deque<std::pair<int, Frame>> to_node_;
  std::deque<Word> to_launcher_;
};

struct Scene {
  Scene() { fs::create_directory(source()); }
  [[nodiscard]] std::string source() const { return folder.path + "/project"; }
  [[nodiscard]] std::string home(int number = 0) const {
    const std::string path = folder.path + "/home" + std::to_string(number);
    fs::create_directory(path);
    return path;
  }
  test::Folder folder;
};

}  // namespace

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

  Nodes nodes({scene.home(0), scene.home(1)});
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

TEST_CASE("the list travels a window at a time, and all nodes get the same parts") {
  Tree tree;
  tree.name = "many";
  for (int number = 10'000; number < 34'000; ++number) {
    TreeEntry entry;
    entry.path = std::to_string(number) + std::string(500, 'p');
    tree.entries.push_back(entry);
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
                       [](int, const std::string&) {}, [](int, int, const std::string&) {}});
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
    REQUIRE(senders.on_message(0, AgentMessage::kFileCredit, count_body(2U << 20U)).ok());
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

TEST_CASE("only what has changed travels, what is gone goes, and what ranks have made stays") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", "one");
  test::write_file(from + "/b", "two");
  test::write_file(from + "/old/deep/c", "three");
  test::write_file(from + "/kept/d", "four");
  fs::create_symlink("a", from + "/l");
  Nodes nodes({scene.home()});
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
  Nodes nodes({scene.home()});
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
  Nodes first({scene.home()});
  Nodes second({scene.home()});
  Nodes third({scene.home()});
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

TEST_CASE("who waits for the copy of another job says so, and gets the folder after it") {
  const Scene scene;
  test::write_file(scene.source() + "/a", "one");
  const std::string home = scene.home();
  const std::string place = tree_place({"HOME=" + home}).value();
  std::optional<TreeFolder> other = TreeFolder::take(place, scan_tree(scene.source(), {}).value().name, {}).value();
  REQUIRE(other);
  Nodes nodes({home});
  nodes.at_each_turn = [&] {
    if (nodes.progress() == "waiting for another job, which copies the same folder there") {
      other.reset();
    }
  };
  nodes.bring(scene.source());
  CHECK_FALSE(other);
  CHECK(nodes.counts[AgentMessage::kFileCredit] >= 1);
  CHECK(test::read_file(nodes.path() + "/a") == "one");
  CHECK(nodes.progress().empty());
}

TEST_CASE("agents of one job that share a home write once") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", std::string(1U << 20U, 'a'));
  test::write_file(from + "/b", "two");
  Nodes nodes({scene.home(), scene.home(), scene.home()});
  nodes.bring(from);
  CHECK(nodes.failed.empty());
  CHECK(nodes.totals().files == 2);
  CHECK(nodes.path(0) == nodes.path(1));
  CHECK(nodes.path(0) == nodes.path(2));
  CHECK(contents(nodes.path(2)) == contents(from));
}

TEST_CASE("agents of one job that share a home write once, though a file changes; the next job has it as it is then") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a", std::string(1U << 20U, 'a'));
  test::write_file(from + "/log", "begun");
  auto tree = scan_tree(from, {});
  REQUIRE(tree.ok());
  test::write_file(from + "/log", "another");
  Nodes nodes({scene.home(), scene.home(), scene.home()});
  nodes.bring(std::move(tree).value());
  CHECK(nodes.failed.empty());
  CHECK(nodes.totals().files == 2);
  const std::string place = nodes.path(0);
  CHECK(nodes.path(1) == place);
  CHECK(nodes.path(2) == place);
  nodes.join(scene.home());
  CHECK(nodes.failed.empty());
  CHECK(nodes.path(3) == place);
  Nodes other({scene.home()});
  other.bring(from);
  CHECK(other.path() != place);
  CHECK(contents(other.path()) == contents(from));
  nodes.end();
  other.end();
  other.bring(from);
  CHECK(contents(other.path()) == contents(from));
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
    Nodes nodes({home});
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
  fs::remove(from + "/deep/10");
  fs::remove(from + "/deep/39");
  fs::remove(from + "/link");
  fs::remove(from + "/empty");
  Nodes nodes({home});
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
  Nodes nodes({scene.home()});
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

TEST_CASE("a host that comes later has what the others have, or is told which file has changed") {
  const Scene scene;
  const std::string& from = scene.source();
  // The last two have something from before. So each wants other files, and no read of the launcher's serves two.
  test::write_file(from + "/other", "x");
  Nodes({scene.home(3), scene.home(4)}).bring(from);
  test::write_file(from + "/log", "begun");
  Nodes({scene.home(4)}).bring(from);
  test::write_file(from + "/train.py", "one");
  Nodes nodes({scene.home(0), scene.home(1)});
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
  CHECK(nodes.failed[4] == "--sync: cannot read " + from + "/train.py: No such file or directory");
}

TEST_CASE("what cannot be is told once, and names the place") {
  const Scene scene;
  const std::string& from = scene.source();
  test::write_file(from + "/a/b", "one");
  Nodes nodes({scene.home()});
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
  nodes.bring(std::move(tree).value());
  CHECK(nodes.failed[0] == "--sync: cannot read " + from + "/a: No such file or directory");
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
  Nodes nodes({scene.home()});
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
  Nodes nodes(homes);
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
  Nodes nodes({scene.home(0), scene.home(1), scene.home(2), scene.home(3)});
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
    sink.on_bytes = [&outcome](const std::string& body) -> Result<void> {
      outcome = "got " + FileBytes::decode(body).value().pieces.front().bytes;
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

TEST_CASE("random changes of a folder arrive, whatever ranks do in between") {
  const Scene scene;
  const std::string& from = scene.source();
  Nodes nodes({scene.home(0), scene.home(1)});
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
  TreeReceiver agent(*loop, {"HOME=" + scene.home()}, {}, [](AgentMessage, std::string_view) {});
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
                       [](int) { return std::vector<std::string>(); }, [](int, const std::string&) {},
                       [](int, int, const std::string&) {}});
  CHECK_FALSE(senders.on_message(0, AgentMessage::kAskTree, "").ok());
  senders.offer(0);
  CHECK(senders.on_message(0, AgentMessage::kAskTree, "").ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kAskTree, "").ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kWantFiles, WantedFiles{{0}}.encode()).ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kTreeHere, TreeHere{}.encode()).ok());
  CHECK_FALSE(senders.on_message(0, AgentMessage::kOfferTree, "").ok());
}
