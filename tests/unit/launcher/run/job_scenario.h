// JobScenario: a whole job by the real JobRunner, on nodes that are not there (fake_transport.h), in a time that goes
// by itself (virtual_time.h). A test says what happens when, runs the job, and looks at what the user saw, what the
// nodes were told, and how long it took by the job's clock.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/offers/host_source.h"
#include "launcher/run/job_runner.h"
#include "launcher/transport/transport_choice.h"
#include "tests/support/fake_transport.h"
#include "tests/support/virtual_time.h"

namespace hvd::test {

// Says the news of a job in few words, and remembers their order.
class NewsKeeper final : public launch::JobReporter {
 public:
  launch::Lines on(const launch::JobNews& news) override {
    return std::visit([this](const auto& n) { return tell(n); }, news);
  }
  [[nodiscard]] std::string status() const override { return ""; }

  std::vector<std::string> lines;
  std::vector<std::string> last_errors;
  std::vector<launch::RankRecord> ranks;  // as they were at the end
  std::vector<Duration> ranks_may_stay;   // likewise
  int reports = 0;

 private:
  launch::Lines keep(std::string line) {
    lines.push_back(std::move(line));
    return {lines.back()};
  }
  static std::string node(int number) { return "node" + std::to_string(number + 1); }

  template <typename News>
  launch::Lines tell(const News&) {
    return {};
  }
  launch::Lines tell(const launch::news::SlowStart&) { return keep("slow start"); }
  launch::Lines tell(const launch::news::AllReady&) { return keep("all ready"); }
  launch::Lines tell(const launch::news::NodeAway& n) { return keep("away: " + node(n.node) + ": " + n.why.message()); }
  launch::Lines tell(const launch::news::NodeBack& n) { return keep("back: " + node(n.node)); }
  launch::Lines tell(const launch::news::NodeLost& n) { return keep("lost: " + node(n.node)); }
  launch::Lines tell(const launch::news::RankRestarted& n) { return keep("restarted: " + std::to_string(n.rank)); }
  launch::Lines tell(const launch::news::Failing& n) { return keep("failing: " + n.cause.lines.front()); }
  launch::Lines tell(const launch::news::Refused& n) { return keep("refused: " + n.why.message()); }
  launch::Lines tell(const launch::Note& n) { return keep("note: " + n.text); }
  launch::Lines tell(const launch::Failure& failure) {
    ++reports;
    last_errors = failure.last_errors;
    launch::Lines told;
    for (const std::string& line : failure.cause.lines) {
      told.push_back(keep("cause: " + line).front());
    }
    return told;
  }
  launch::Lines tell(const launch::news::Ended& n) {
    ranks = n.state.ranks();
    ranks_may_stay = n.ranks_may_stay;
    return keep("ended");
  }
};

// A file without a name.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("console", MFD_CLOEXEC)) { REQUIRE(fd_.is_open()); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::string text() const {
    std::string text(static_cast<std::size_t>(::lseek(fd_.get(), 0, SEEK_END)), '\0');
    REQUIRE(::pread(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  Fd fd_;
};

struct JobScenario {
  explicit JobScenario(const std::string& hosts = "node1:1,node2:1")
      : placement(launch::place(launch::parse_host_list(hosts).value(), 0).value()) {
    spec.size = placement.size;
    spec.argv = {"train"};
    spec.cwd = "/home/me";
    spec.stall_after = Duration::zero();  // nobody watches, unless a test says so
    console = {screen.fd(), screen.fd()};
  }

  FakeNode& node(int number) { return nodes.node("node" + std::to_string(number)); }
  void at(Duration when, EventLoop::Task task) { time.loop().after(when, std::move(task)); }
  // Runs the job and returns its exit code.
  int run() {
    agents = launch::agents_of(spec, placement);
    runner =
        std::make_unique<launch::JobRunner>(time.loop(), spec, placement, agents, transports(), news, log, console);
    if (input.is_open()) {
      runner->take_input(std::move(input));
    }
    if (host_source != nullptr) {
      runner->follow_hosts(*host_source);
    }
    if (tree) {
      runner->bring(*std::move(tree));
    }
    const Result<int> code = runner->run();
    REQUIRE(code.ok());
    return code.value();
  }
  [[nodiscard]] launch::Transports transports() { return {&nodes, &nodes, nullptr, &nodes, nullptr}; }
  [[nodiscard]] std::string shown() const { return screen.text(); }
  // The first line of this beginning, and what follows the beginning; empty: there is none.
  [[nodiscard]] std::string told(const std::string& beginning) const {
    for (const std::string& line : news.lines) {
      if (line.starts_with(beginning)) {
        return line.substr(beginning.size());
      }
    }
    return "";
  }
  [[nodiscard]] std::size_t count(const std::string& beginning) const {
    return static_cast<std::size_t>(std::count_if(news.lines.begin(), news.lines.end(),
                                                  [&](const auto& line) { return line.starts_with(beginning); }));
  }

  VirtualTime time;
  FakeTransport nodes{time.loop()};
  launch::JobSpec spec;
  launch::Placement placement;
  launch::Placement agents;
  MemoryFile screen;
  launch::ConsoleFds console;
  Fd input;
  std::optional<launch::Tree> tree;
  launch::HostSource* host_source = nullptr;  // null: the job's hosts stay as they are
  NewsKeeper news;
  NullLog log;
  std::unique_ptr<launch::JobRunner> runner;
};

}  // namespace hvd::test
