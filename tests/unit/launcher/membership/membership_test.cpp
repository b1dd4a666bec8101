// launcher/membership/membership: who trains together when ranks are lost, are started again, and come.
#include "launcher/membership/membership.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"

namespace hvd::launch::membership_test {
namespace {

using Members = std::vector<int>;

struct Job {
  explicit Job(int least, const std::string& hosts = "node1:2,node2:2", int most = 100)
      : placement(place(parse_host_list(hosts).value(), 0).value()), membership(placement, least, most) {}

  // The members of the generation that is formed now; none: there is no other than before.
  Members next() {
    const auto formed = membership.next();
    return formed ? formed->members : Members();
  }
  void wait(int rank) { membership.on_waiting(rank, membership.now().number); }
  // The members leave, and wait to be taken in again. Until the last has there is no other generation.
  Members leave() {
    for (const int member : Members(membership.now().members)) {
      CHECK(next().empty());
      wait(member);
    }
    return next();
  }

  Placement placement;
  Membership membership;
};

}  // namespace

TEST_CASE("the first generation has all ranks, and nothing changes by itself") {
  Job job(2);
  CHECK(job.membership.now().number == 0);
  CHECK(job.membership.now().members == Members{0, 1, 2, 3});
  CHECK(job.next().empty());
}

TEST_CASE("when a rank is lost the others go on at once, in their order") {
  Job job(2);
  job.membership.on_lost(1);
  CHECK(job.membership.is_broken());
  CHECK(job.next() == Members{0, 2, 3});
  CHECK_FALSE(job.membership.is_broken());
  job.membership.on_lost(0);
  CHECK(job.next() == Members{2, 3});
  CHECK(job.membership.now().number == 2);
}

TEST_CASE("too few ranks wait for one that is started again, and go on when it waits to be taken in") {
  Job job(4);
  job.membership.on_lost(1);
  job.membership.on_starting(1);
  CHECK(job.next().empty());
  CHECK(job.membership.is_broken());
  job.wait(0);  // the survivors have come back, which is not enough
  job.wait(2);
  job.wait(3);
  CHECK(job.next().empty());
  job.wait(1);
  CHECK(job.next() == Members{0, 1, 2, 3});
  CHECK(job.membership.now().number == 1);
}

TEST_CASE("the others may wait for as many members as before, unless the job is ending") {
  Job job(1);
  job.membership.on_lost(1);
  job.membership.on_starting(1);
  CHECK_FALSE(job.membership.next(false).has_value());
  job.wait(1);
  const auto formed = job.membership.next(false);
  REQUIRE(formed.has_value());
  CHECK(formed->members == Members{0, 1, 2, 3});
  job.membership.on_lost(2);
  CHECK_FALSE(job.membership.next(false).has_value());
  job.membership.on_done(3);
  CHECK(job.membership.next(false)->members == Members{0, 1});
}

TEST_CASE("for who comes later the members are asked to leave, once, and he stands behind the survivors of his node") {
  Job job(2);
  job.membership.on_lost(0);
  job.membership.on_starting(0);
  CHECK(job.next() == Members{1, 2, 3});
  CHECK_FALSE(job.membership.must_ask(false));
  job.wait(0);
  CHECK(job.membership.must_ask(false));
  CHECK_FALSE(job.membership.must_ask(false));
  CHECK(job.leave() == Members{1, 0, 2, 3});
  CHECK(job.membership.now().newcomers == Members{0});
  CHECK_FALSE(job.membership.must_ask(false));
}

TEST_CASE("newcomers wait for others that are being started, but not for ever, and all that wait are taken in") {
  Job job(2, "node1:2,node2:3");
  for (const int rank : {2, 3, 4}) {
    job.membership.on_lost(rank);
    job.membership.on_starting(rank);
  }
  CHECK(job.next() == Members{0, 1});
  job.wait(3);
  CHECK(job.membership.awaits_others());
  CHECK_FALSE(job.membership.must_ask(false));
  CHECK(job.membership.must_ask(true));
  CHECK_FALSE(job.membership.awaits_others());
  job.wait(2);  // it comes before the members have left
  CHECK(job.leave() == Members{0, 1, 2, 3});
  job.wait(4);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 2, 3, 4});
}

TEST_CASE("a loss while the members leave makes a generation at once, of them and those that wait") {
  Job job(2);
  job.membership.on_lost(3);
  job.membership.on_starting(3);
  CHECK(job.next() == Members{0, 1, 2});
  job.wait(3);
  CHECK(job.membership.must_ask(false));
  job.wait(0);
  job.membership.on_lost(1);
  CHECK(job.next() == Members{0, 2, 3});
}

TEST_CASE("the loss of one that is not taken in yet changes nothing for the members") {
  Job job(2);
  job.membership.on_lost(3);
  job.membership.on_starting(3);
  CHECK(job.next() == Members{0, 1, 2});
  job.wait(3);
  job.membership.on_lost(3);
  CHECK_FALSE(job.membership.is_broken());
  CHECK(job.next().empty());
  CHECK_FALSE(job.membership.must_ask(true));
}

TEST_CASE("when a rank has ended in order nobody is taken in, and the others can still meet") {
  Job job(2);
  job.membership.on_lost(3);
  job.membership.on_starting(3);
  CHECK(job.next() == Members{0, 1, 2});
  job.membership.on_done(1);
  job.wait(3);
  CHECK_FALSE(job.membership.must_ask(true));
  CHECK_FALSE(job.membership.is_broken());
  job.wait(0);
  CHECK(job.next().empty());
  job.wait(2);
  CHECK(job.next() == Members{0, 2});
}

TEST_CASE("what an agent said of an older generation says nothing of this one") {
  Job job(2);
  job.membership.on_lost(3);
  CHECK(job.next() == Members{0, 1, 2});
  for (const int rank : {0, 1, 2}) {
    job.membership.on_waiting(rank, 0);  // they called before they could hear of generation 1
  }
  CHECK(job.next().empty());
}

TEST_CASE("members that have all left by themselves meet again") {
  Job job(4);
  for (const int rank : {0, 1, 2}) {
    job.wait(rank);
    CHECK(job.next().empty());
  }
  job.wait(3);
  CHECK(job.next() == Members{0, 1, 2, 3});
}

TEST_CASE("ranks that came with a new host stand behind the others, and those of a host with more slots beside them") {
  Job job(2, "node1:2,node2:1");
  job.placement.add({"node3", "", 0, 2}, 0, 2);
  job.membership.add(2);
  job.placement.add({"node1", "", 0, 3}, 2, 1);
  job.membership.add(1);
  CHECK(job.next().empty());
  job.wait(4);
  job.wait(5);
  CHECK_FALSE(job.membership.must_ask(false));  // rank 3 is being started
  job.wait(3);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 5, 2, 3, 4});
  CHECK(job.membership.now().newcomers == Members{5, 3, 4});
  const auto places = places_of(job.placement, job.membership.now().members);
  CHECK(places.at(5).local_rank == 2);
  CHECK(places.at(5).local_size == 3);
  CHECK(places.at(5).node_index == 0);
  CHECK(places.at(3).node_count == 3);
}

TEST_CASE("ranks of a host that is given back are released when all have left, and never taken in again") {
  Job job(2);
  job.membership.set_leaving({0, 1});
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{2, 3});
  CHECK(job.membership.now().released == Members{0, 1});
  job.wait(0);
  job.wait(1);
  CHECK_FALSE(job.membership.must_ask(true));
  CHECK(job.next().empty());
}

TEST_CASE("a rank that was released and ends in order does not keep others from joining") {
  Job job(2);
  job.membership.set_leaving({0, 1});
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{2, 3});
  job.membership.on_done(0);
  job.placement.add({"node3", "", 0, 1}, 0, 1);
  job.membership.add(1);
  job.wait(4);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{2, 3, 4});
}

TEST_CASE("nobody is released while the others are too few, but when hosts have come that make up for it") {
  Job job(3);
  job.membership.set_leaving({2, 3});
  CHECK_FALSE(job.membership.must_ask(true));
  job.placement.add({"node3", "", 0, 1}, 0, 1);
  job.membership.add(1);
  job.membership.set_leaving({2, 3});
  CHECK_FALSE(job.membership.must_ask(false));
  job.wait(4);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 4});
}

TEST_CASE("a job that always has as many ranks takes those that replace others in when it can release them") {
  Job job(4, "node1:2,node2:2", 4);
  job.membership.set_leaving({2, 3});
  job.placement.add({"node3", "", 0, 2}, 0, 2);
  job.membership.add(2);
  job.wait(4);
  CHECK_FALSE(
      job.membership.must_ask(true));  // with one of the two there is neither room for it nor enough without them
  job.wait(5);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 4, 5});
  CHECK(job.membership.now().released == Members{2, 3});
}

TEST_CASE("members are not told of newcomers for whom there is no room, and that cannot replace others") {
  Job job(4, "node1:2,node2:2", 4);
  job.membership.set_leaving({2, 3});
  job.placement.add({"node3", "", 0, 1}, 0, 1);
  job.membership.add(1);
  CHECK(job.membership.is_growing());
  job.wait(4);
  CHECK_FALSE(job.membership.is_growing());  // who waits for them to be taken in would wait for ever
  job.membership.set_leaving({3});
  CHECK(job.membership.is_growing());
}

TEST_CASE("newcomers wait while the job has as many ranks as it may have, and take the place of those that are lost") {
  Job job(1, "node1:2,node2:2", 4);
  job.placement.add({"node3", "", 0, 2}, 0, 2);
  job.membership.add(2);
  job.wait(4);
  job.wait(5);
  CHECK_FALSE(job.membership.must_ask(true));
  job.membership.on_lost(3);
  CHECK(job.next() == Members{0, 1, 2, 4});
  CHECK_FALSE(job.membership.must_ask(true));
}

TEST_CASE("a host that is offered again before its ranks have left keeps them") {
  Job job(2);
  job.membership.set_leaving({2, 3});
  CHECK(job.membership.must_ask(false));
  job.wait(2);
  job.membership.set_leaving({});
  job.wait(0);
  job.wait(1);
  CHECK(job.next().empty());
  job.wait(3);
  CHECK(job.next() == Members{0, 1, 2, 3});
}

TEST_CASE("ranks of a host that is given back and that were not taken in yet are released at once") {
  Job job(2);
  job.placement.add({"node3", "", 0, 1}, 0, 1);
  job.membership.add(1);
  job.membership.set_leaving({4});
  CHECK_FALSE(job.membership.must_ask(true));
  job.wait(4);
  CHECK_FALSE(job.membership.must_ask(true));
  CHECK_FALSE(job.membership.awaits_others());
}

TEST_CASE("a rank that is started again while its host is to be given back leaves it all the same") {
  Job job(2);
  job.membership.set_leaving({3});
  job.membership.on_lost(3);
  CHECK(job.next() == Members{0, 1, 2});
  job.membership.on_starting(3);
  job.wait(3);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 2, 3});
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 2});
  CHECK(job.membership.now().released == Members{3});
}

TEST_CASE("a loss among those that stay, while others are to leave, keeps whom the job needs") {
  Job job(2);
  job.membership.set_leaving({2, 3});
  CHECK(job.membership.must_ask(false));
  job.membership.on_lost(0);
  CHECK(job.next() == Members{1, 2, 3});
  CHECK(job.membership.now().released.empty());
}

TEST_CASE("a newcomer that is sent away again counts for nobody whose host is given back") {
  Job job(4);
  job.placement.add({"node3", "", 0, 1}, 0, 1);
  job.membership.add(1);
  job.wait(4);
  job.membership.set_leaving({4});  // its host comes and goes
  job.membership.set_leaving({});
  job.membership.set_leaving({3});
  CHECK_FALSE(job.membership.must_ask(true));
  CHECK_FALSE(job.membership.is_growing());
}

TEST_CASE("a process that is started again has the GPU of its slot, and the others keep theirs") {
  Job job(2, "node1:4");
  job.membership.on_lost(1);
  CHECK(job.next() == Members{0, 2, 3});
  const auto slots = [&job] {
    std::map<int, int> slot_of;
    for (const auto& [rank, place] : places_of(job.placement, job.membership.now().members)) {
      slot_of[rank] = place.slot;
    }
    return slot_of;
  };
  CHECK(slots() == std::map<int, int>{{0, 0}, {2, 1}, {3, 2}});  // without a gap
  job.membership.on_starting(1);
  job.wait(1);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 2, 3, 1});
  CHECK(slots() == std::map<int, int>{{0, 0}, {1, 1}, {2, 2}, {3, 3}});
  CHECK(places_of(job.placement, {0, 2, 3, 1}).at(1).local_rank == 3);  // by which leaders are chosen
}

TEST_CASE("a host whose ranks have come cannot meet the others where one of them waits again before all have met") {
  Job job(2);
  job.placement.add({"node3", "", 0, 2}, 0, 2);
  job.membership.add(2);
  job.wait(4);
  job.wait(5);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 2, 3, 4, 5});
  job.wait(0);  // it knows the others
  CHECK(job.membership.unmet_hosts().empty());
  job.wait(5);
  CHECK(job.membership.unmet_hosts() == std::vector<Members>{{4, 5}});
  job.membership.on_met();
  CHECK(job.membership.unmet_hosts().empty());
  job.membership.on_lost(5);
  job.membership.on_starting(5);
  CHECK(job.next() == Members{0, 1, 2, 3, 4});
  job.wait(5);
  CHECK(job.membership.must_ask(false));
  CHECK(job.leave() == Members{0, 1, 2, 3, 4, 5});
  job.wait(5);  // rank 4 is beside it
  CHECK(job.membership.unmet_hosts().empty());
}

TEST_CASE("members meet again where one waits again before all have met, and not where they leave later") {
  Job job(2);
  job.membership.on_met();
  job.wait(1);
  CHECK(job.membership.unmet_rank() == -1);
  job.membership.on_lost(3);
  CHECK(job.next() == Members{0, 1, 2});
  CHECK(job.membership.unmet_rank() == -1);
  job.wait(2);
  CHECK(job.membership.unmet_rank() == 2);
  CHECK(job.membership.unmet_hosts().empty());  // it has met the others before
  job.membership.break_up();
  CHECK(job.membership.unmet_rank() == -1);
  CHECK(job.next() == Members{0, 1, 2});
}

TEST_CASE("nodes of one host whose ranks were started alike number these anew") {
  Job job(1, "node1:1,node2:1");
  job.placement.nodes[1].machine = 0;
  const auto places = places_of(job.placement, {0, 1});
  CHECK(places.at(0).slot == 0);
  CHECK(places.at(1).slot == 1);
}

TEST_CASE("places count the nodes and local ranks that are left") {
  const Job job(1, "node1:2,node2:2,node3:1");
  const auto places = places_of(job.placement, {1, 3, 2, 4});
  CHECK(places.at(1).rank == 0);
  CHECK(places.at(1).local_rank == 0);
  CHECK(places.at(1).local_size == 1);
  CHECK(places.at(1).cross_size == 3);
  CHECK(places.at(3).rank == 1);
  CHECK(places.at(3).local_rank == 0);
  CHECK(places.at(3).cross_rank == 1);
  CHECK(places.at(2).local_rank == 1);
  CHECK(places.at(2).cross_rank == 0);
  CHECK(places.at(2).cross_size == 1);
  CHECK(places.at(4).node_index == 2);
  CHECK(places.at(4).node_count == 3);
  CHECK(places.at(4).size == 4);
  for (const auto& [rank, place] : places) {
    CHECK(place.is_valid());
  }
}

// Each step is a loss, a start or a call of a random rank, or a host that comes or is to be given back.
TEST_CASE("random losses, starts and hosts: no member twice, enough members, survivors in order, rank 0 survives") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int least = static_cast<int>(random() % 5) + 1;
    const int most = static_cast<int>(random() % 5) + 6;
    Job job(least, "node1:2,node2:1,node3:3", most);
    std::set<int> lost;
    std::set<int> released;
    Members before = job.membership.now().members;
    std::uint32_t number = 0;
    for (int step = 0; step < 60; ++step) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(job.placement.size));
      const unsigned long what = random() % 8 % 5;
      if (what == 0) {
        job.membership.on_lost(rank);
        lost.insert(rank);
      } else if (what == 1 && lost.contains(rank) && !released.contains(rank)) {
        job.membership.on_starting(rank);
      } else if (what == 2) {
        job.wait(rank);
      } else if (what == 3 && job.placement.size < 12) {
        job.placement.add({"node" + std::to_string(random() % 5 + 1), "", 0, 2}, 0, 2);
        job.membership.add(2);
      } else if (what == 4) {
        const Members leaving = {rank};
        job.membership.set_leaving(random() % 3 == 0 ? Members() : leaving);
      }
      static_cast<void>(job.membership.must_ask(random() % 4 == 0));
      const Members after = job.next();
      if (after.empty()) {
        continue;
      }
      CHECK(job.membership.now().number == ++number);
      CHECK(static_cast<int>(after.size()) >= least);
      CHECK(static_cast<int>(after.size()) <= most);
      CHECK(std::set<int>(after.begin(), after.end()).size() == after.size());
      const Members& gone = job.membership.now().released;
      released.insert(gone.begin(), gone.end());
      for (const int member : after) {
        CHECK_FALSE(released.contains(member));
      }
      Members survivors;
      std::copy_if(before.begin(), before.end(), std::back_inserter(survivors),
                   [&](int member) { return !lost.contains(member) && !released.contains(member); });
      Members same;
      std::copy_if(after.begin(), after.end(), std::back_inserter(same), [&](int member) {
        return std::find(survivors.begin(), survivors.end(), member) != survivors.end();
      });
      CHECK(same == survivors);
      if (!survivors.empty()) {
        CHECK(after.front() == survivors.front());
      }
      const auto places = places_of(job.placement, after);
      CHECK(places.size() == after.size());
      for (std::size_t place = 0; place < after.size(); ++place) {
        CHECK(places.at(after[place]).rank == static_cast<int>(place));
        CHECK(places.at(after[place]).is_valid());
      }
      before = after;
      lost.clear();
    }
  }
}

}  // namespace hvd::launch::membership_test
