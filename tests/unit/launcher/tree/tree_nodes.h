// Both sides of --sync, in memory: a launcher and the nodes to which it brings a folder. The folders are real.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/tree/tree_receiver.h"
#include "launcher/tree/tree_senders.h"
#include "tests/support/jumping_clock.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::test {

using launch::AgentMessage;
using launch::ScanOptions;
using launch::Tree;
using launch::TreeReceiver;
using launch::TreeSenders;

// Every path below a folder with what it is: "sub/ 755", "link -> target", "file 644 content".
inline std::vector<std::string> contents(const std::string& root) {
  std::vector<std::string> found;
  for (const auto& item : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = item.path().lexically_relative(root).string();
    struct stat status{};
    REQUIRE(::lstat(item.path().c_str(), &status) == 0);
    const std::string mode = " " + std::to_string((status.st_mode >> 6U) & 7U) +
                             std::to_string((status.st_mode >> 3U) & 7U) + std::to_string(status.st_mode & 7U);
    if (item.is_symlink()) {
      found.push_back(path + " -> " + std::filesystem::read_symlink(item.path()).string());
    } else if (item.is_directory()) {
      found.push_back(path + "/" + mode);
    } else {
      found.push_back(path + mode + " " + read_file(item.path().string()));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// One launcher and its nodes, each with a home of its own. Messages are carried one at a time, and counted.
class TreeNodes {
 public:
  explicit TreeNodes(std::vector<std::string> homes) : homes_(std::move(homes)) {
    loop_ = EventLoop::create(clock).value();
  }

  void bring(const std::string& folder, const ScanOptions& options = {}) {
    auto tree = launch::scan_tree(folder, options);
    REQUIRE_MESSAGE(tree.ok(), (tree.ok() ? "" : tree.error().message()));
    bring(std::move(tree).value());
  }

  void bring(Tree tree) {
    end();
    counts.clear();
    failed.clear();
    changed.clear();
    fallbacks.clear();
    waits.clear();
    TreeSenders::Sink sink;
    sink.send = [this](int node, AgentMessage type, const std::shared_ptr<const std::string>& frame) {
      ++counts[type];
      FrameDecoder decoder(launch::kAgentFrames);
      decoder.feed(as_bytes(*frame));
      const auto decoded = decoder.next();
      REQUIRE(decoded.ok());
      to_node_.emplace_back(node, *decoded.value());
    };
    sink.on_here = [this](int node) { here.push_back(node); };
    sink.on_failed = [this](int node, const Error& why) { failed[node] = why.message(); };
    sink.addresses_of = [this](int) { return addresses; };
    sink.on_changed = [this](int node, const std::string& path, std::size_t others) {
      changed[node] = path + (others == 0 ? "" : " and " + std::to_string(others));
    };
    sink.on_waiting = [this](int, const std::string& what) { waits.push_back(what); };
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

  JumpingClock clock;
  std::function<void()> at_each_turn;
  std::map<AgentMessage, int> counts;
  std::vector<int> here;
  std::map<int, std::string> failed;
  std::map<int, std::string> changed;
  std::map<int, std::string> fallbacks;
  std::vector<std::string> waits;
  std::vector<std::string> addresses{"127.0.0.1"};

 private:
  struct Word {
    int node;
    AgentMessage type;
    std::string body;
  };

  void offer(const std::string& home) {
    const int node = static_cast<int>(agents_.size());
    agents_.push_back(std::make_unique<TreeReceiver>(*loop_, std::vector<std::string>{"HOME=" + home},
                                                     TreeReceiver::Job{"ab", {job_}},
                                                     [this, node](AgentMessage type, std::string_view body) {
                                                       ++counts[type];
                                                       to_launcher_.push_back({node, type, std::string(body)});
                                                     }));
    senders_->offer(node);
  }

  std::uint8_t job_ = 0;
  const std::vector<std::string> homes_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<TreeSenders> senders_;
  std::vector<std::unique_ptr<TreeReceiver>> agents_;
  std::deque<std::pair<int, Frame>> to_node_;
  std::deque<Word> to_launcher_;
};

struct Scene {
  Scene() { std::filesystem::create_directory(source()); }
  [[nodiscard]] std::string source() const { return folder.path + "/project"; }
  [[nodiscard]] std::string home(int number = 0) const {
    const std::string path = folder.path + "/home" + std::to_string(number);
    std::filesystem::create_directory(path);
    return path;
  }
  Folder folder;
};

}  // namespace hvd::test
