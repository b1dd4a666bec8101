// launcher/logs/line_gather: equal lines of several ranks become one, and nothing is lost, torn or put out of order.
#include <algorithm>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/logs/line_gather.h"
#include "runtime/base/cpu_list.h"

namespace hvd::launch::gather_test {
namespace {

constexpr Duration kWindow = std::chrono::milliseconds(250);
constexpr std::size_t kNoLimit = 1U << 30U;

TimePoint at(int ms) {
  return TimePoint(std::chrono::milliseconds(ms));
}

std::string shown(std::span<const int> ranks, bool is_error, std::string_view line) {
  return "[" + hvd::cpu_list_text({ranks.begin(), ranks.end()}) + "]" + (is_error ? "!" : "") + std::string(line);
}

struct Gather {
  explicit Gather(int size, std::size_t most_bytes = kNoLimit)
      : gather(size, kWindow, most_bytes, [this](std::span<const int> ranks, bool is_error, std::string_view line) {
          lines.push_back(shown(ranks, is_error, line));
        }) {}
  std::vector<std::string> lines;
  LineGather gather;
};

using Lines = std::vector<std::string>;

// The rule of the header, as plainly as it can be written.
class Reference {
 public:
  Reference(int size, std::size_t most_bytes) : ranks_(static_cast<std::size_t>(size)), most_bytes_(most_bytes) {}

  void add(std::size_t rank, bool is_error, const std::string& line, TimePoint now) {
    ranks_[rank].queue.push_back({is_error, line, now + kWindow, number_++});
    settle();
  }
  void end(std::size_t rank, bool is_error) {
    ranks_[rank].has_ended[is_error ? 1 : 0] = true;
    settle();
  }
  void release_due(TimePoint now) {
    for (;;) {
      const auto oldest = find_oldest();
      if (oldest == ranks_.size() || ranks_[oldest].queue.front().due > now) {
        return;
      }
      release(oldest);
      settle();
    }
  }
  void release_all() {
    while (find_oldest() != ranks_.size()) {
      release(find_oldest());
    }
  }
  Lines lines;

 private:
  struct Held {
    bool is_error;
    std::string line;
    TimePoint due;
    int number;
  };
  struct Rank {
    std::deque<Held> queue;
    bool has_ended[2] = {false, false};
  };

  [[nodiscard]] std::size_t find_oldest() const {
    std::size_t oldest = ranks_.size();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].queue.empty()) {
        continue;
      }
      const auto key = [this](std::size_t i) {
        return std::pair(ranks_[i].queue.front().due, ranks_[i].queue.front().number);
      };
      if (oldest == ranks_.size() || key(r) < key(oldest)) {
        oldest = r;
      }
    }
    return oldest;
  }
  [[nodiscard]] bool has_equal_head(std::size_t rank, const Held& held) const {
    const auto& queue = ranks_[rank].queue;
    return !queue.empty() && queue.front().is_error == held.is_error && queue.front().line == held.line;
  }
  void release(std::size_t rank) {
    const Held held = ranks_[rank].queue.front();
    std::vector<int> ranks;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (has_equal_head(r, held)) {
        ranks.push_back(static_cast<int>(r));
        ranks_[r].queue.pop_front();
      }
    }
    lines.push_back(shown(ranks, held.is_error, held.line));
  }
  [[nodiscard]] bool is_complete(std::size_t rank) const {
    const Held& held = ranks_[rank].queue.front();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const bool can_join = !ranks_[r].queue.empty() || !ranks_[r].has_ended[held.is_error ? 1 : 0];
      if (can_join && !has_equal_head(r, held)) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] std::size_t held_bytes() const {
    std::size_t bytes = 0;
    for (const Rank& rank : ranks_) {
      for (const Held& held : rank.queue) {
        bytes += held.line.size() + LineGather::kLineCost;
      }
    }
    return bytes;
  }
  void settle() {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t r = 0; r < ranks_.size() && !again; ++r) {
        if (!ranks_[r].queue.empty() && is_complete(r)) {
          release(r);
          again = true;
        }
      }
      if (!again && held_bytes() > most_bytes_) {
        release(find_oldest());
        again = true;
      }
    }
  }

  std::vector<Rank> ranks_;
  const std::size_t most_bytes_;
  int number_ = 0;
};

}  // namespace

TEST_CASE("a line that all ranks print is one, without waiting") {
  Gather g(3);
  for (int rank : {2, 0, 1}) {
    CHECK(g.lines.empty());
    g.gather.add(rank, false, "epoch 1\n", at(0));
  }
  CHECK(g.lines == Lines{"[0-2]epoch 1\n"});
  CHECK_FALSE(g.gather.when());
}

TEST_CASE("what some ranks print waits for the window and no longer") {
  Gather g(40);
  for (int rank = 0; rank < 16; ++rank) {
    g.gather.add(rank, false, "x\n", at(rank));
  }
  g.gather.add(32, false, "x\n", at(100));
  g.gather.add(33, true, "x\n", at(100));
  CHECK(g.gather.when() == at(250));
  g.gather.release_due(at(249));
  CHECK(g.lines.empty());
  g.gather.release_due(at(250));
  CHECK(g.lines == Lines{"[0-15,32]x\n"});
  g.gather.release_due(at(350));
  CHECK(g.lines.back() == "[33]!x\n");
  CHECK_FALSE(g.gather.when());
  CHECK(g.gather.held_bytes() == 0);
}

TEST_CASE("a line is folded only from the head of its rank's queue, so that its order is kept") {
  Gather g(2);
  g.gather.add(0, false, "b\n", at(0));
  g.gather.add(1, false, "a\n", at(10));
  g.gather.add(1, false, "b\n", at(20));
  g.gather.release_due(at(250));
  CHECK(g.lines == Lines{"[0]b\n"});
  g.gather.release_due(at(270));
  CHECK(g.lines == Lines{"[0]b\n", "[1]a\n", "[1]b\n"});
}

TEST_CASE("heads that become equal when others have gone are folded at once") {
  Gather g(2);
  g.gather.add(0, false, "rank 0\n", at(0));
  g.gather.add(1, false, "rank 1\n", at(5));
  g.gather.add(0, false, "same\n", at(10));
  g.gather.add(1, false, "same\n", at(15));
  g.gather.release_due(at(255));
  CHECK(g.lines == Lines{"[0]rank 0\n", "[1]rank 1\n", "[0,1]same\n"});
}

TEST_CASE("nobody waits for a rank that has closed its stream") {
  Gather g(3);
  g.gather.end(2, false);
  g.gather.add(0, false, "x\n", at(0));
  g.gather.add(1, false, "x\n", at(0));
  CHECK(g.lines == Lines{"[0,1]x\n"});
  g.gather.add(0, false, "y\n", at(1));
  g.gather.end(1, false);
  CHECK(g.lines.back() == "[0]y\n");
  g.gather.add(0, true, "z\n", at(2));
  CHECK(g.lines.size() == 2);
}

TEST_CASE("a rank alone does not wait, and what is held is bounded") {
  Gather alone(1);
  alone.gather.add(0, false, "x\n", at(0));
  CHECK(alone.lines.size() == 1);
  Gather g(2, 9 * (11 + LineGather::kLineCost));
  for (int i = 0; i < 1000; ++i) {
    g.gather.add(0, false, "0123456789\n", at(0));
    CHECK(g.gather.held_bytes() <= 9 * (11 + LineGather::kLineCost));
  }
  CHECK(g.lines.size() == 991);
}

TEST_CASE(
    "any interleaving folds as the rule says, loses nothing, keeps each rank's order, and is late by the window") {
  std::mt19937 random(7);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 400; ++round) {
    const std::size_t size = 1 + below(6);
    const std::size_t most = below(4) == 0 ? 6 * (2 + LineGather::kLineCost) : kNoLimit;
    std::vector<std::deque<std::pair<std::string, TimePoint>>> printed(size);
    TimePoint now = at(0);
    Lines lines;
    LineGather gather(static_cast<int>(size), kWindow, most,
                      [&](std::span<const int> ranks, bool is_error, std::string_view line) {
                        lines.push_back(shown(ranks, is_error, line));
                        for (const int rank : ranks) {
                          auto& own = printed[static_cast<std::size_t>(rank)];
                          REQUIRE_FALSE(own.empty());
                          CHECK(own.front().first == (is_error ? "!" : "") + std::string(line));
                          CHECK(now - own.front().second <= kWindow + std::chrono::milliseconds(40));  // a step
                          own.pop_front();
                        }
                      });
    Reference reference(static_cast<int>(size), most);
    std::vector<std::vector<bool>> ended(size, {false, false});
    for (int step = 0; step < 200; ++step) {
      now += std::chrono::milliseconds(below(40));
      gather.release_due(now);
      reference.release_due(now);
      const std::size_t rank = below(size);
      const bool is_error = below(3) == 0;
      if (ended[rank][is_error ? 1 : 0]) {
        continue;
      }
      if (below(60) == 0) {
        ended[rank][is_error ? 1 : 0] = true;
        gather.end(static_cast<int>(rank), is_error);
        reference.end(rank, is_error);
        continue;
      }
      const std::string line = std::string(1, static_cast<char>('a' + below(3))) + "\n";
      printed[rank].emplace_back((is_error ? "!" : "") + line, now);
      gather.add(static_cast<int>(rank), is_error, line, now);
      reference.add(rank, is_error, line, now);
      CHECK(gather.held_bytes() <= most);
    }
    gather.release_all();
    reference.release_all();
    CHECK(lines == reference.lines);
    CHECK(std::all_of(printed.begin(), printed.end(), [](const auto& own) { return own.empty(); }));
    CHECK_FALSE(gather.when());
  }
}

}  // namespace hvd::launch::gather_test
