// launcher/membership: what users of elastic Horovod rely on when ranks and hosts come and go, one case each. Those
// that are about hosts alone are in tests/unit/launcher/offers/scenarios_test.cpp.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/membership/membership.h"

namespace hvd::launch::scenarios_test {
namespace {

using Members = std::vector<int>;

struct Job {
  Job(const std::string& hosts, int least)
      : placement(place(parse_host_list(hosts).value(), 0).value()), membership(placement, least, 100) {}

  // Returns the members of the generation that is formed now; none: the present one stays.
  Members next() {
    const auto formed = membership.next();
    return formed ? formed->members : Members();
  }
  // All members leave when it suits them; returns the members of what is formed then.
  Members all_leave() {
    for (const int member : Members(membership.now().members)) {
      membership.on_waiting(member, membership.now().number);
    }
    return next();
  }
  void lose(const Members& ranks) {
    for (const int rank : ranks) {
      membership.on_lost(rank);
    }
  }
  // Ranks are started on a host that was not there before.
  void add(const std::string& host, int slots) {
    placement.add({host, "", 0, slots}, 0, slots);
    membership.add(slots);
  }
  void wait(const Members& ranks) {
    for (const int rank : ranks) {
      membership.on_waiting(rank, membership.now().number);
    }
  }
  // "0/4 local 0/2 cross 0/2" of a rank by the number that it was started with.
  std::string place_of(int rank) const {
    const GenerationPlace at = places_of(placement, membership.now().members).at(rank);
    const auto of = [](int index, int count) { return std::to_string(index) + "/" + std::to_string(count); };
    return of(at.rank, at.size) + " local " + of(at.local_rank, at.local_size) + " cross " +
           of(at.cross_rank, at.cross_size);
  }

  Placement placement;
  Membership membership;
};

}  // namespace

TEST_CASE("two hosts of two slots: each rank has the place that it was started with") {
  Job job("a:2,b:2", 2);
  CHECK(job.place_of(0) == "0/4 local 0/2 cross 0/2");
  CHECK(job.place_of(1) == "1/4 local 1/2 cross 0/2");
  CHECK(job.place_of(2) == "2/4 local 0/2 cross 1/2");
  CHECK(job.place_of(3) == "3/4 local 1/2 cross 1/2");
  for (const int rank : {0, 1, 2, 3}) {
    job.membership.on_done(rank);
  }
  CHECK(job.next().empty());
  CHECK(job.membership.now().number == 0);
}

TEST_CASE("the second host fails before its ranks have met the others, who then are the whole job") {
  Job job("a:2,b:2", 2);
  job.lose({2, 3});
  CHECK(job.next() == Members{0, 1});
  CHECK(job.place_of(0) == "0/2 local 0/2 cross 0/1");
  CHECK(job.place_of(1) == "1/2 local 1/2 cross 0/1");
}

TEST_CASE("a host that is added to a job of one host has the last ranks, and the first keep theirs") {
  Job job("a:2", 2);
  job.add("b", 2);
  CHECK(job.membership.is_growing());
  CHECK(job.next().empty());  // nobody waits for its start
  job.wait({2, 3});
  CHECK(job.membership.must_ask(false));
  CHECK(job.all_leave() == Members{0, 1, 2, 3});
  CHECK_FALSE(job.membership.is_growing());
  CHECK(job.place_of(0) == "0/4 local 0/2 cross 0/2");
  CHECK(job.place_of(1) == "1/4 local 1/2 cross 0/2");
  CHECK(job.place_of(2) == "2/4 local 0/2 cross 1/2");
  CHECK(job.place_of(3) == "3/4 local 1/2 cross 1/2");
}

TEST_CASE("when all ranks fail there is nobody to go on") {
  Job job("a:2,b:2", 2);
  job.lose({0, 1, 2, 3});
  CHECK(job.next().empty());
  CHECK(job.membership.is_broken());
  CHECK_FALSE(job.membership.is_growing());
}

TEST_CASE("when one rank has ended well, those that fail afterwards are replaced by nobody, however few are left") {
  Job job("a:2,b:2", 3);
  job.membership.on_done(0);
  job.lose({1, 2});
  job.membership.on_starting(1);
  job.wait({1});
  CHECK(job.next() == Members{3});
  CHECK_FALSE(job.membership.must_ask(true));
  CHECK_FALSE(job.membership.is_growing());
}

TEST_CASE("one rank fails and its host is left as a whole: the other host's ranks are renumbered from 0") {
  Job job("a:2,b:2", 2);
  job.lose({0, 1});
  CHECK(job.next() == Members{2, 3});
  CHECK(job.place_of(2) == "0/2 local 0/2 cross 0/1");
  CHECK(job.place_of(3) == "1/2 local 1/2 cross 0/1");
  CHECK(job.membership.now().newcomers.empty());
  job.wait({1});  // it lives for a moment more, and would like to go on
  CHECK_FALSE(job.membership.must_ask(true));
  CHECK_FALSE(job.membership.is_growing());
}

TEST_CASE("members are told once that a host has come, and once that a host is to go") {
  Job job("a:2", 2);
  CHECK_FALSE(job.membership.must_ask(false));
  job.add("b", 2);
  job.wait({2, 3});
  CHECK(job.membership.must_ask(false));
  CHECK_FALSE(job.membership.must_ask(false));
  CHECK(job.all_leave() == Members{0, 1, 2, 3});
  job.membership.set_leaving({0, 1});
  CHECK(job.membership.must_ask(false));
  CHECK_FALSE(job.membership.must_ask(false));
  CHECK(job.all_leave() == Members{2, 3});
  CHECK(job.membership.now().released == Members{0, 1});
}

TEST_CASE("a change that leaves too few is kept in mind, and acted on when hosts have come that make up for it") {
  Job job("a:8,b:4", 8);
  job.membership.set_leaving({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK_FALSE(job.membership.must_ask(true));
  job.add("c", 4);
  job.membership.set_leaving({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK_FALSE(job.membership.must_ask(false));
  job.wait({12, 13, 14, 15});
  CHECK(job.membership.must_ask(false));
  CHECK(job.all_leave() == Members{8, 9, 10, 11, 12, 13, 14, 15});
}

TEST_CASE("hosts keep their order when one goes and one comes, in whatever order they are named then") {
  Job job("a:1,b:1,c:1", 1);
  job.membership.set_leaving({0});
  job.add("d", 1);
  job.wait({3});
  CHECK(job.membership.must_ask(false));
  CHECK(job.all_leave() == Members{1, 2, 3});
}

}  // namespace hvd::launch::scenarios_test
