// launcher/logs/progress_rows, rank_tags and error_tail: what stands below, before and behind the lines of ranks.
#include "launcher/logs/progress_rows.h"

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/logs/error_tail.h"
#include "launcher/logs/rank_tags.h"
#include "tests/support/still_clock.h"

namespace hvd::launch::progress_rows_test {
namespace {

using Texts = std::vector<std::string>;

// Two ranks, of which only standard error gets rows.
struct Screen {
  void wait(int ms) {
    clock.advance(std::chrono::milliseconds(ms));
    REQUIRE(loop->turn(Deadline(clock.now())).ok());
  }

  test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  RankTags tags{{{true, true}, {false, true}, {}}, 2};
  Texts shown;
  int times = 0;
  ProgressRows rows{*loop, tags, {false, true}, [this](const std::vector<ProgressRows::Row>& drawn) {
                      ++times;
                      shown.clear();
                      for (const ProgressRows::Row& row : drawn) {
                        CHECK(row.is_error);
                        shown.push_back(row.text);
                      }
                    }};
};

}  // namespace

TEST_CASE("bars that change quickly are drawn once, by rank, and the status is last") {
  Screen screen;
  screen.rows.show_status("2 of 2 run");
  for (const char* const state : {"1%\r", "2%\r", "3%\r"}) {
    CHECK(screen.rows.take_line(1, true, state));
    CHECK(screen.rows.take_line(0, true, state));
  }
  CHECK_FALSE(screen.rows.take_line(0, false, "1%\r"));  // this stream is no terminal
  screen.wait(249);
  CHECK(screen.times == 0);
  screen.wait(1);
  CHECK(screen.times == 1);
  CHECK(screen.shown == Texts{"\x1b[36m[0]<stderr>:\x1b[0m3%", "\x1b[32m[1]<stderr>:\x1b[0m3%", "2 of 2 run"});
  screen.wait(1000);
  CHECK(screen.times == 1);
}

TEST_CASE("what must not be shown any more is gone at once") {
  Screen screen;
  screen.rows.show_status("starting");
  CHECK(screen.rows.take_line(0, true, "1%\r"));
  screen.wait(250);
  CHECK(screen.shown.size() == 2);
  CHECK_FALSE(screen.rows.take_line(0, true, "done\n"));
  CHECK(screen.shown == Texts{"starting"});
  CHECK_FALSE(screen.rows.has_bar(0, true));
  screen.rows.show_status("");
  CHECK(screen.shown.empty());
  CHECK(screen.times == 3);
}

TEST_CASE("a bar without a text is none on the screen, and goes on") {
  Screen screen;
  CHECK(screen.rows.take_line(0, true, "\r"));
  screen.wait(250);
  CHECK(screen.times == 0);
  CHECK(screen.rows.has_bar(0, true));
  screen.rows.set_bar(0, true, "1%");
  screen.wait(250);
  CHECK(screen.shown.size() == 1);
}

TEST_CASE("tags have labels as far as there are any, and a line of several ranks has their numbers") {
  RankTags tags({{true, false}, {false, false}, {"worker:0"}}, 1);
  tags.add_rank();
  CHECK(tags.of(0, false) == "[worker:0]<stdout>:");
  CHECK(tags.of(1, false) == "[1]<stdout>:");
  CHECK(tags.of(1, true).empty());
  const std::vector<int> ranks = {0, 1, 2, 5};
  CHECK(tags.of_several(ranks, false) == "[0-2,5]<stdout>:");
  CHECK(tags.of_several(ranks, true).empty());
  CHECK(tags.color_of(0, false).empty());
}

TEST_CASE("of a progress bar only the newest state is among the last lines, and these are few and short") {
  ErrorTail tail;
  tail.add("begin\n", 1);
  for (int percent = 0; percent < 100; ++percent) {
    tail.add(std::to_string(percent) + "%\r", 0);
  }
  CHECK(tail.last(1).lines == Texts{"begin", "99%"});
  tail.add("ValueError\r\n", 2);
  CHECK(tail.last(2).lines == Texts{"begin", "ValueError"});
  CHECK(tail.last(2).just_shown == 2);
  for (int i = 0; i < 100; ++i) {
    tail.add(std::string(1000, 'x') + "\n", 0);
  }
  CHECK(tail.last(2).lines == Texts(60, std::string(500, 'x')));
  CHECK(tail.last(2).just_shown == 0);
}

}  // namespace hvd::launch::progress_rows_test
