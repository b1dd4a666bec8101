// launcher/check/link_check: the links between hosts, measured by agents that answer as a test says.
#include "launcher/check/link_check.h"

#include <map>
#include <memory>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "runtime/io/event_loop.h"
#include "tests/support/still_clock.h"

namespace hvd::launch::link_check_test {
namespace {

// Agents that answer as a test says, on a loop that no descriptor wakes.
struct FakeAgents {
  hvd::test::StillClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::vector<std::pair<int, ProbeRequest>> asked;
  int under_way = 0;  // questions that have not arrived
  bool is_done = false;
  std::unique_ptr<LinkCheck> links;
  // Errors by (from, to); what is not there works. Silent hosts answer nothing.
  std::map<std::pair<int, int>, std::string> errors;
  std::set<int> silent;

  explicit FakeAgents(int hosts) {
    std::vector<LinkCheck::Host> list;
    for (int host = 0; host < hosts; ++host) {
      list.push_back({10 + host, "10.0.0." + std::to_string(host)});
    }
    LinkCheck::Sink sink;
    sink.send = [this](int node, AgentMessage type, const std::string& body) {
      REQUIRE(type == AgentMessage::kAskProbe);
      ++under_way;
      loop->post([this, node, request = ProbeRequest::decode(body).value()] { answer(node, request); });
    };
    sink.on_round = [](int, int) {};
    sink.on_done = [this] { is_done = true; };
    links = std::make_unique<LinkCheck>(*loop, list, std::chrono::seconds(60), sink);
  }

  void answer(int node, const ProbeRequest& request) {
    --under_way;
    asked.emplace_back(node, request);
    if (silent.count(node) != 0) {
      return;
    }
    const auto error = errors.find({request.from, request.to});
    if (!request.dials) {
      links->on_listening(node, {request.number, 4000, ""});
      return;
    }
    ProbeResult dialed;
    dialed.number = request.number;
    dialed.dialed = true;
    dialed.round_trip = std::chrono::microseconds(40);
    dialed.stage = error == errors.end() ? ProbeStage::kDone : ProbeStage::kConnect;
    dialed.error = error == errors.end() ? "" : error->second;
    links->on_probed(node, dialed);
    ProbeResult listened;
    listened.number = request.number;
    listened.stage = ProbeStage::kDone;
    listened.bytes = 1000;
    listened.stream_time = std::chrono::seconds(1);
    links->on_probed(request.to, listened);
  }

  void run() {
    links->start();
    finish();
  }
  void turn() { REQUIRE(loop->turn(Deadline(clock.now())).ok()); }
  // Time passes only where nobody is about to answer.
  void finish() {
    for (int turns = 0; !is_done; ++turns) {
      REQUIRE(turns < 1000);
      if (under_way == 0) {
        clock.advance(std::chrono::minutes(2));
      }
      turn();
    }
  }
};

}  // namespace

TEST_CASE("all links are measured, in both directions, with the addresses of their ends") {
  FakeAgents agents(5);
  agents.run();
  const auto links = agents.links->links();
  CHECK(links.size() == 20);
  for (const CheckedLink& link : links) {
    CHECK(link.works());
    CHECK(link.bytes_per_second == doctest::Approx(1000));
  }
  for (const auto& [node, request] : agents.asked) {
    CHECK(node == (request.dials ? request.from : request.to));
    CHECK(request.address == "10.0.0." + std::to_string(request.to - 10) + (request.dials ? ":4000" : ""));
  }
}

TEST_CASE("a link that fails does not keep the others from being measured") {
  FakeAgents agents(4);
  agents.errors[{10, 11}] = "timed out";
  agents.run();
  for (const CheckedLink& link : agents.links->links()) {
    CHECK(link.works() == (link.from != 10 || link.to != 11));
  }
}

TEST_CASE("an agent that answers nothing costs its links a deadline each, and no other") {
  FakeAgents agents(3);
  agents.silent = {12};
  agents.run();
  for (const CheckedLink& link : agents.links->links()) {
    CHECK(link.was_tried);
    CHECK(link.works() == (link.from != 12 && link.to != 12));
  }
}

TEST_CASE("the links of a host that is lost are over at once, and not tried any more") {
  FakeAgents agents(4);
  agents.silent = {10};
  agents.links->start();
  agents.turn();
  agents.links->on_lost(10, "its agent was lost");
  agents.finish();
  for (const CheckedLink& link : agents.links->links()) {
    CHECK((link.works() || link.from == 10 || link.to == 10));
  }
}

TEST_CASE("answers of another probe, or of a host that was not asked, are left alone") {
  FakeAgents agents(2);
  agents.links->on_listening(11, {99, 4000, ""});
  ProbeResult strange;
  strange.number = 1;
  agents.links->on_probed(11, strange);
  agents.links->start();
  agents.links->on_listening(10, {1, 4000, ""});  // number 1 listens at node 11
  strange.dialed = true;
  agents.links->on_probed(11, strange);  // and node 10 dials
  agents.finish();
  CHECK(agents.links->links().front().works());
}

TEST_CASE("links that are given up count as not tried, and nothing more is said") {
  FakeAgents agents(3);
  agents.silent = {10, 11, 12};
  agents.links->start();
  agents.turn();
  agents.links->give_up();
  agents.links->on_lost(10, "late");
  CHECK(!agents.is_done);
  const auto links = agents.links->links();
  CHECK(links.size() >= 2);
  CHECK(std::none_of(links.begin(), links.end(), [](const CheckedLink& link) { return link.works(); }));
}

TEST_CASE("one host has no links, and that is soon known") {
  FakeAgents agents(1);
  agents.links->start();
  CHECK(agents.is_done);
  CHECK(agents.links->links().empty());
}

}  // namespace hvd::launch::link_check_test
