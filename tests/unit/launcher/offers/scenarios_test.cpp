// launcher/offers: what users of elastic Horovod rely on when the hosts of a job change, one case each.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/offers/first_hosts.h"
#include "launcher/offers/host_updates.h"

namespace hvd::launch::offers_scenarios_test {

using namespace std::chrono_literals;

namespace {

HostList hosts(const std::string& text) {
  return text.empty() ? HostList() : parse_host_list(text).value();
}

// Tells these hosts one after the other, as a script would that is run again and again.
class ListedHosts final : public HostSource {
 public:
  ListedHosts(EventLoop& loop, std::vector<std::string> steps) : loop_(loop), steps_(std::move(steps)) {}
  ~ListedHosts() override { loop_.cancel(timer_); }

  void start(Handlers handlers) override {
    handlers_ = std::move(handlers);
    tell();
  }
  void stop() override { loop_.cancel(std::exchange(timer_, 0)); }
  void note_use(const HostUse& use) override { uses.push_back(use); }
  [[nodiscard]] std::size_t told() const { return next_; }
  [[nodiscard]] bool has_told_all() const { return next_ == steps_.size(); }

  std::vector<HostUse> uses;

 private:
  void tell() {
    timer_ = loop_.after(Duration::zero(), [this] {
      timer_ = 0;
      if (next_ < steps_.size()) {
        const std::string& step = steps_[next_++];
        tell();
        step == "fails" ? handlers_.on_trouble("the script fails") : handlers_.on_hosts(hosts(step));
      }
    });
  }

  EventLoop& loop_;
  const std::vector<std::string> steps_;
  std::size_t next_ = 0;
  Handlers handlers_;
  TimerId timer_ = 0;
};

// A job that does what it is asked for at once, and keeps what it was asked for.
struct Job {
  Job(const std::string& first, int most, std::vector<std::string> steps)
      : loop(EventLoop::create(clock).value()), source(*loop, std::move(steps)) {
    for (const HostSpec& host : hosts(first)) {
      start(host.name, 0, host.slots);
    }
    HostUpdates::Sink sink;
    sink.use = [this] {
      HostUse use;
      for (const HostedRank& rank : there) {
        use.used.insert(rank.host);
      }
      return use;
    };
    sink.there = [this] { return std::optional(there); };
    sink.join = [this](const JoiningRanks& ranks) {
      asked.push_back("+" + ranks.host.name + ":" + std::to_string(ranks.count));
      start(ranks.host.name, ranks.first_local, ranks.count);
    };
    sink.set_leaving = [this](const std::vector<int>& ranks) {
      asked.push_back("-" + std::to_string(ranks.size()));
      std::erase_if(there, [&](const HostedRank& rank) {
        return releases && std::find(ranks.begin(), ranks.end(), rank.rank) != ranks.end();
      });
    };
    sink.say = [](const std::string&) {};
    updates = std::make_unique<HostUpdates>(*loop, source, HostOffers(hosts(first), {most, 10s, 60s}), sink);
  }
  void start(const std::string& host, int first_local, int count) {
    for (int local = 0; local < count; ++local) {
      there.push_back({next_rank++, host, first_local + local});
    }
  }
  // Until the source has told all.
  std::vector<std::string> run() {
    updates->begin();
    while (!source.has_told_all()) {
      REQUIRE(loop->turn().ok());
    }
    for (int i = 0; i < 3; ++i) {  // what the last step has posted
      REQUIRE(loop->turn(Deadline::after(Duration::zero())).ok());
    }
    return asked;
  }
  // The hosts with ranks, in the order of these: "a:2 b:1".
  [[nodiscard]] std::string used() const {
    std::vector<std::pair<std::string, int>> counts;
    for (const HostedRank& rank : there) {
      if (counts.empty() || counts.back().first != rank.host) {
        counts.emplace_back(rank.host, 0);
      }
      ++counts.back().second;
    }
    std::string text;
    for (const auto& [host, count] : counts) {
      text += (text.empty() ? "" : " ") + host + ":" + std::to_string(count);
    }
    return text;
  }

  SteadyClock clock;
  std::unique_ptr<EventLoop> loop;
  ListedHosts source;
  std::unique_ptr<HostUpdates> updates;
  std::vector<HostedRank> there;
  std::vector<std::string> asked;
  int next_rank = 0;
  bool releases = true;
};

// Returns the hosts that a job of so many ranks begins with, or why it does not; and how often the source told.
std::pair<std::string, std::size_t> first(int least, std::vector<std::string> steps) {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  ListedHosts source(*loop, std::move(steps));
  const auto found = await_first_hosts(*loop, source, least, 60s, [](const std::string&) {});
  if (!found.ok()) {
    return {found.error().message(), source.told()};
  }
  std::string text;
  for (const HostSpec& host : found.value()) {
    text += host.name + ":" + std::to_string(host.slots) + " ";
  }
  return {text, source.told()};
}

}  // namespace

TEST_CASE("the source is told which hosts the job uses from the beginning, before any of them changes") {
  Job job("a:1,b:1", 2, {});
  job.updates->begin();
  REQUIRE(job.source.uses.size() == 1);
  CHECK(job.source.uses.front().used == std::set<std::string>{"a", "b"});
}

TEST_CASE("the source is told that a host is used as soon as it is to join") {
  Job job("a:1", 2, {"a:1", "a:1,b:1"});
  job.run();
  CHECK(job.source.uses.back().used == std::set<std::string>{"a", "b"});
}

TEST_CASE("a job waits until there are slots enough, and begins with all hosts that there are then") {
  const auto [begins, looks] = first(16, {"a:4", "a:4,b:8", "a:4,b:8,c:4"});
  CHECK(begins == "a:4 b:8 c:4 ");
  CHECK(looks == 3);
}

TEST_CASE("slots are what counts for a beginning: one host is enough, if it has them") {
  CHECK(first(2, {"a:4", "a:4,b:8"}).first == "a:4 ");
}

TEST_CASE("the first look fails: the job does not begin, and does not wait") {
  CHECK(first(2, {"fails", "a:4"}) == std::pair<std::string, std::size_t>("the script fails", 1));
}

TEST_CASE("hosts are added, taken away, and both at once; the same hosts again are no change") {
  Job job("a:2", 100, {"a:2", "a:2,b:2", "b:2", "b:1,c:1", "b:1,c:1"});
  CHECK(job.run() == std::vector<std::string>{"+b:2", "-2", "-1", "+c:1", "-0"});
  CHECK(job.used() == "b:1 c:1");
}

TEST_CASE("each change is told, also one that leaves fewer than the job needs") {
  Job job("a:8,b:4", 12, {"a:8,b:4", "b:4", "b:4,c:12"});
  job.releases = false;  // too few would be left: membership keeps them, until those that replace them have come
  CHECK(job.run() == std::vector<std::string>{"-8", "+c:8"});
  CHECK(job.used() == "a:8 b:4 c:8");
  Job with_room("a:8,b:4", 24, {"a:8,b:4", "b:4", "b:4,c:12"});
  with_room.releases = false;
  CHECK(with_room.run() == std::vector<std::string>{"-8", "+c:12"});
}

TEST_CASE("hosts named in another order keep the order of their ranks, and new ones come last") {
  Job job("a:1,b:1,c:1", 100, {"d:1,c:1,b:1"});
  CHECK(job.run() == std::vector<std::string>{"-1", "+d:1"});
  CHECK(job.used() == "b:1 c:1 d:1");
}

TEST_CASE("a host that has failed gets no ranks while it is offered on, and the others keep theirs") {
  Job job("a:2,b:2", 100, {"a:2,b:2", "b:2,a:2"});
  std::erase_if(job.there, [](const HostedRank& rank) { return rank.host == "a"; });
  job.updates->exclude("a", "has failed");
  CHECK(job.run().empty());
  CHECK(job.used() == "b:2");
}

}  // namespace hvd::launch::offers_scenarios_test
