// launcher/sessions/heartbeat and return_attempts: when a node is silent for too long, and when it is tried again.
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/sessions/heartbeat.h"
#include "launcher/sessions/return_attempts.h"
#include "tests/support/still_clock.h"

namespace hvd::launch::return_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Time {
  void go_on(Duration by) {
    clock.advance(by);
    REQUIRE(loop->turn(Deadline(clock.now())).ok());
  }
  test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
};

struct Pulse : Time {
  int beats = 0;
  std::vector<Duration> silences;
  Heartbeat heartbeat{*loop, {[this] { ++beats; }, [this](Duration silence) { silences.push_back(silence); }}};
};

struct Attempts : Time {
  // Goes on in steps until no attempt has begun or failed for a minute.
  void play() {
    for (int i = 0; i < 600; ++i) {
      const auto before = told.size();
      go_on(milliseconds(100));
      i = told.size() == before ? i : 0;
    }
  }
  void tell(const std::string& what) {
    const auto ms = std::chrono::duration_cast<milliseconds>(attempts.away()).count();
    told.push_back(std::to_string(ms) + " " + what);
  }
  std::vector<std::string> told;  // when, in milliseconds, and what
  bool is_refused = false;
  ReturnAttempts attempts{*loop,
                          {[this] {
                             tell("try");
                             if (is_refused) {
                               attempts.fail(Error(Code::kLostPeer, "refused"));
                             }
                           },
                           [this](const Error& why) {
                             if (!is_refused) {
                               tell(why.message());
                             }
                           },
                           [this](const Error& why) { tell(why.message()); }}};
};

using Told = std::vector<std::string>;

}  // namespace

TEST_CASE("a node has three whole intervals to be heard, and the last look is right after them") {
  Pulse pulse;
  pulse.go_on(seconds(100));
  CHECK(pulse.heartbeat.is_in_touch());  // nobody asked for heartbeats
  pulse.heartbeat.begin(seconds(1));
  pulse.go_on(seconds(1));
  CHECK(pulse.heartbeat.is_in_touch());
  pulse.go_on(seconds(1));
  CHECK_FALSE(pulse.heartbeat.is_in_touch());
  pulse.go_on(seconds(1));
  CHECK(pulse.beats == 3);
  CHECK(pulse.silences.empty());
  pulse.go_on(milliseconds(1));
  CHECK(pulse.silences == std::vector<Duration>{milliseconds(3001)});
  pulse.go_on(seconds(100));
  CHECK(pulse.silences.size() == 1);
  CHECK(pulse.beats == 3);
}

TEST_CASE("whoever is heard is not silent, and neither is one whom we could not hear") {
  Pulse pulse;
  pulse.heartbeat.begin(seconds(1));
  for (int i = 0; i < 10; ++i) {
    pulse.go_on(seconds(1));
    pulse.heartbeat.hear();
  }
  CHECK(pulse.beats == 10);
  pulse.go_on(std::chrono::hours(1));  // this process was stopped
  CHECK(pulse.beats == 11);
  CHECK(pulse.heartbeat.is_in_touch());
  pulse.heartbeat.pause();
  pulse.go_on(std::chrono::hours(1));
  pulse.heartbeat.hear();
  pulse.heartbeat.go_on();
  pulse.go_on(seconds(1));
  CHECK(pulse.beats == 12);
  CHECK(pulse.silences.empty());
}

TEST_CASE("attempts follow each other ever more slowly, and the last one comes when the time is over") {
  Attempts a;
  a.is_refused = true;
  a.attempts.allow(seconds(20));
  a.attempts.begin(Error(Code::kLostPeer, "the wire broke"));
  a.attempts.try_soon();
  CHECK(a.told.empty());  // the caller may be inside the stream
  a.go_on(Duration::zero());
  a.play();
  CHECK(a.told == Told{"0 try", "500 try", "1500 try", "3500 try", "7500 try", "11500 try", "15500 try", "19500 try",
                       "20000 try", "20000 the wire broke; not reached again within 20 s: refused"});
}

TEST_CASE("an attempt without an answer ends by itself, and earlier where little time is left") {
  Attempts a;
  a.attempts.allow(seconds(30));
  a.attempts.begin(Error(Code::kLostPeer, "the wire broke"));
  a.attempts.try_soon();
  a.go_on(Duration::zero());
  a.play();
  CHECK(a.told == Told{"0 try", "20000 no answer within 20 s", "20500 try",
                       "30000 the wire broke; not reached again within 30 s: no answer within 9.5 s"});
}

TEST_CASE("nothing follows once an attempt has succeeded") {
  Attempts a;
  a.attempts.allow(seconds(30));
  a.attempts.begin(Error(Code::kLostPeer, "the wire broke"));
  a.attempts.try_soon();
  a.go_on(Duration::zero());
  a.attempts.stop();
  a.play();
  CHECK(a.told == Told{"0 try"});
}

}  // namespace hvd::launch::return_test
