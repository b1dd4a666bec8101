// launcher/run/job_restarts, launcher/report/restart_reporter and launcher/offers/first_hosts: jobs all of whose ranks
// are started anew.
#include "launcher/state/job_restarts.h"

#include <signal.h>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/offers/first_hosts.h"
#include "launcher/report/restart_reporter.h"
#include "launcher/report/text_reporter.h"
#include "launcher/state/exit_codes.h"
#include "tests/support/silence.h"
#include "tests/support/still_clock.h"
#include "tests/support/virtual_time.h"

namespace hvd::launch::job_restarts_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;

namespace {

const TimePoint kNow{1000s};
constexpr ExitStatus kSeven{ExitStatus::Kind::kExited, 7};

struct Start {
  explicit Start(const HostList& hosts, int size) : placement(place(hosts, size).value()), state(placement) {
    for (const NodePlan& node : placement.nodes) {
      state.on(NodeReady{node.index});
    }
    for (int rank = 0; rank < placement.size; ++rank) {
      state.on(RankStarted{rank, 100 + rank});
    }
  }
  Start& fail(int rank) {
    state.on(RankExited{rank, kSeven});
    return *this;
  }
  Start& lose(int node) {
    state.on(NodeLost{node, Error(Code::kLostPeer, "it is gone")});
    return *this;
  }
  Start& end() {
    for (const NodePlan& node : placement.nodes) {
      if (!state.is_over(node.index)) {
        state.on(NodeDone{node.index});
      }
    }
    return *this;
  }

  Placement placement;
  JobState state;
};

JobRestarts restarts_of(const std::string& hosts, int least, int most, bool may_wait = false) {
  return {parse_host_list(hosts).value(), {2, least, may_wait, {most, 10s, 60s}}};
}

std::string names(const Seats& seats) {
  std::string text = std::to_string(seats.count) + ":";
  for (const HostSpec& host : seats.hosts) {
    text += " " + host.name;
  }
  return text;
}

}  // namespace

TEST_CASE("a job starts anew when a rank has failed, as often as is allowed, on the same hosts") {
  JobRestarts restarts = restarts_of("a:2,b:2", 4, 4);
  for (const int number : {1, 2}) {
    Start start(parse_host_list("a:2,b:2").value(), 4);
    CHECK(restarts.on_ended(start.placement, start.fail(1).end().state, kNow));
    CHECK(restarts.number() == number);
    CHECK(names(restarts.offers().seats(kNow)) == "4: a b");
  }
  Start last(parse_host_list("a:2,b:2").value(), 4);
  CHECK_FALSE(restarts.on_ended(last.placement, last.fail(1).end().state, kNow));
  CHECK_FALSE(restarts.is_due());
}

TEST_CASE("a host that is lost is replaced by one that was to spare, or done without, and comes back after a time") {
  JobRestarts restarts = restarts_of("a:1,b:1,c:1", 2, 2);
  Start start(parse_host_list("a:1,b:1").value(), 2);
  CHECK(restarts.on_ended(start.placement, start.lose(1).end().state, kNow));
  CHECK(names(restarts.offers().seats(kNow)) == "2: a c");
  CHECK(names(restarts.offers().seats(kNow + 11s)) == "2: a b");

  JobRestarts fewer = restarts_of("a:2,b:2", 2, 4);
  Start two(parse_host_list("a:2,b:2").value(), 4);
  CHECK(fewer.on_ended(two.placement, two.lose(0).end().state, kNow));
  CHECK(names(fewer.offers().seats(kNow)) == "2: b");
}

TEST_CASE("a host that fell silent has no part in a new start before its agent must have ended the old ranks") {
  const StillClock clock;
  StartMemory memory{restarts_of("a:2,b:2", 2, 4), TimePoint{}, 0, {}};
  Start start(parse_host_list("a:2,b:2").value(), 4);
  RestartReporter reporter(std::make_unique<Silence>(), start.placement, clock, memory);
  reporter.on(news::Ended{start.lose(1).end().state, 1s, false, 0, {0s, 75s}});
  CHECK(memory.restarts.is_due());
  CHECK(names(memory.restarts.offers().seats(clock.now() + 74s)) == "2: a");
  CHECK(names(memory.restarts.offers().seats(clock.now() + 75s)) == "4: a b");
}

TEST_CASE("too few hosts end the job, unless others may come") {
  for (const bool may_wait : {false, true}) {
    JobRestarts restarts = restarts_of("a:1,b:1", 2, 2, may_wait);
    Start start(parse_host_list("a:1,b:1").value(), 2);
    CHECK(restarts.on_ended(start.placement, start.lose(1).end().state, kNow) == may_wait);
  }
}

TEST_CASE("a job that succeeded, could not begin, or was to end does not start anew") {
  const HostList hosts = parse_host_list("a:1,b:1").value();
  JobRestarts restarts = restarts_of("a:1,b:1", 1, 2);
  Start good(hosts, 2);
  good.state.on(RankExited{0, {}}), good.state.on(RankExited{1, {}});
  CHECK_FALSE(restarts.on_ended(good.placement, good.end().state, kNow));
  Start stopped(hosts, 2);
  stopped.state.on(Interrupted{SIGINT});
  CHECK_FALSE(restarts.on_ended(stopped.placement, stopped.end().state, kNow));
  Start stopped_late(hosts, 2);
  stopped_late.fail(0).state.on(Interrupted{SIGINT});  // the user has had enough of it
  CHECK_FALSE(restarts.on_ended(stopped_late.placement, stopped_late.end().state, kNow));
  const Placement placement = place(hosts, 2).value();
  JobState unreached(placement);
  unreached.on(NodeReady{0}), unreached.on(NodeLost{1, Error(Code::kUnreachable, "no route")});
  CHECK_FALSE(restarts.on_ended(placement, unreached, kNow));
  CHECK(restarts.number() == 0);
}

TEST_CASE("a host that cannot be reached when the job starts again is done without, and that start does not count") {
  const HostList hosts = parse_host_list("a:1,b:1").value();
  JobRestarts restarts = restarts_of("a:1,b:1", 1, 2);
  Start start(hosts, 2);
  CHECK(restarts.on_ended(start.placement, start.fail(0).end().state, kNow));
  const Placement placement = place(hosts, 2).value();
  JobState unreached(placement);
  unreached.on(NodeReady{0}), unreached.on(NodeLost{1, Error(Code::kUnreachable, "no route")});
  CHECK(restarts.on_ended(placement, unreached, kNow));
  CHECK(restarts.number() == 1);
  CHECK(names(restarts.offers().seats(kNow)) == "1: a");
}

TEST_CASE(
    "a host that was discovered and cannot be reached is done without at the first start, where others are enough") {
  const HostList hosts = parse_host_list("a:1,b:1").value();
  const Placement placement = place(hosts, 2).value();
  JobState unreached(placement);
  unreached.on(NodeReady{0}), unreached.on(NodeLost{1, Error(Code::kUnreachable, "no route")});
  JobRestarts restarts = restarts_of("a:1,b:1", 1, 2, true);
  CHECK(restarts.on_ended(placement, unreached, kNow));
  CHECK(restarts.number() == 0);
  CHECK(names(restarts.offers().seats(kNow)) == "1: a");
  int more = 0;
  while (more < 100 && restarts.on_ended(placement, unreached, kNow)) {
    ++more;  // whatever the hosts are, they get fewer each time
  }
  CHECK(more < 10);
  JobRestarts both = restarts_of("a:1,b:1", 2, 2, true);
  CHECK_FALSE(both.on_ended(placement, unreached, kNow));  // a mistake is told at once
}

TEST_CASE("each start is told with its cause, a new size too, and the end with how often it was started again") {
  const SteadyClock clock;
  const HostList hosts = parse_host_list("a:1,b:1").value();
  StartMemory memory{restarts_of("a:1,b:1", 1, 2), TimePoint{}, 0, {}};
  const auto report = [&](Start& start) {
    RestartReporter reporter(std::make_unique<TextReporter>(start.placement, TextOptions{}), start.placement, clock,
                             memory);
    const std::string id = "1";
    Lines lines = reporter.on(news::Begun{id});
    const Note slow{LogLevel::kWarning, 0, "it is slow"};
    for (const JobNews& news : {JobNews(slow), JobNews(slow), JobNews(news::Ended{start.state})}) {
      const Lines more = reporter.on(news);
      lines.insert(lines.end(), more.begin(), more.end());
    }
    return lines;
  };
  Start first(hosts, 2);
  const Lines lines = report(first.lose(1).end());
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "hvdrun: a: it is slow");
  CHECK(lines[1] == lines[0]);
  CHECK(lines[2] == "hvdrun: all ranks are started again (restart 1 of 2): node b was lost, with rank 1: it is gone");
  Start second(parse_host_list("a:1").value(), 1);
  second.state.on(RankExited{0, {}});
  const Lines end = report(second.end());
  REQUIRE(end.size() == 2);
  CHECK(end[0] == "hvdrun: the new start has 1 rank on 1 host, the last one had 2");
  CHECK(end[1].ends_with(", after 1 restart of all ranks"));
}

TEST_CASE("seats are waited for: the best for a while, then enough of them, then in vain") {
  VirtualTime time;
  HostOffers offers(parse_host_list("a:1,b:1").value(), {100, 10s, 60s});
  offers.exclude("b", time.loop().now());
  const auto none = [](const std::string&) { CHECK(false); };
  const TimePoint began = time.loop().now();
  CHECK(await_seats(time.loop(), nullptr, offers, {2, 5s, 1, 0s}, none).ok());
  CHECK(time.loop().now() - began == 5s);  // with what there is
  CHECK(await_seats(time.loop(), nullptr, offers, {2, 20s, 1, 0s}, none).ok());
  CHECK(time.loop().now() - began == 10s);  // b is back
  const auto failed = await_seats(time.loop(), nullptr, offers, {3, 0s, 3, 7s}, none);
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message().find("have 2 slots of the 3 that the job needs") != std::string::npos);
  CHECK(time.loop().now() - began == 17s);
}

}  // namespace hvd::launch::job_restarts_test
