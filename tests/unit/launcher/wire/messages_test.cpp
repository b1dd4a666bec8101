// launcher/wire/messages: what launcher and agent say to each other, whole, cut and random.
#include "launcher/wire/messages.h"

#include <random>

#include <doctest/doctest.h>

namespace hvd::launch::messages_test {
namespace {

StartMessage a_start() {
  StartMessage start;
  start.cwd = "/w";
  start.argv = {"python", "a b", ""};
  start.unset = {"RANK"};
  start.env = {{"A", "1\n2"}, {"B", ""}};
  start.last = {{"C", "=x="}};
  start.ranks = {{3, {{"HVD_RANK", "3"}}, {0, 2}}, {4, {}, {}, {"cat"}, true}};
  start.input_window = kInputWindow;
  return start;
}

// Every proper prefix of a message, and every message with a byte too many, is refused.
template <typename Message>
void check_bounds(const std::string& body) {
  REQUIRE(Message::decode(body).ok());
  for (std::size_t size = 0; size < body.size(); ++size) {
    CHECK(!Message::decode(std::string_view(body).substr(0, size)).ok());
  }
  CHECK(!Message::decode(body + "x").ok());
}

}  // namespace

TEST_CASE("messages survive the way, and are refused when cut or too long") {
  const StartMessage start = StartMessage::decode(a_start().encode()).value();
  CHECK(start.argv == a_start().argv);
  CHECK(start.env == a_start().env);
  CHECK(start.last == a_start().last);
  CHECK(start.ranks[0].env == a_start().ranks[0].env);
  CHECK(start.ranks[0].cpus == hvd::CpuList{0, 2});
  StartMessage wrong = a_start();
  wrong.ranks[1].cpus = {-1};
  CHECK(!StartMessage::decode(wrong.encode()).ok());
  const ReadyMessage ready{"0.1", "n", 1, {{1, {0, 4}}}, 3, "/s", "/r", {}, "CUDA_VISIBLE_DEVICES", {"GPU-1"}, {1}, {}};
  CHECK(ReadyMessage::decode(ready.encode()).value().cores == ready.cores);
  CHECK(ReadyMessage::decode(ready.encode()).value().near == ready.near);
  check_bounds<StartMessage>(a_start().encode());
  check_bounds<WelcomeMessage>(WelcomeMessage{"j", 2, {}, "t", 5, 6, 7}.encode());
  check_bounds<ReadyMessage>(ReadyMessage{"0.1",
                                          "n",
                                          1,
                                          {{1, {0, 4}}},
                                          3,
                                          "/s",
                                          "/r",
                                          {{"eth0", "10.0.0.1/8"}},
                                          "CUDA_VISIBLE_DEVICES",
                                          {"GPU-1"},
                                          {1},
                                          {2, 4, 0, 2}}
                                 .encode());
  check_bounds<ResumeMessage>(ResumeMessage{"/r", "t", 7}.encode());
  check_bounds<RelayStartMessage>(RelayStartMessage{7, {"ssh", ""}}.encode());
  check_bounds<RelayOverMessage>(RelayOverMessage{7, ExitStatus{ExitStatus::Kind::kSignalled, 9}, "killed"}.encode());
  check_bounds<RelayOverMessage>(RelayOverMessage{7, std::nullopt, "no such program"}.encode());
  check_bounds<GenerationMessage>(GenerationMessage{
      GenerationMessage::Kind::kFormed, 1, "rank 1 was killed", {{3, {0, 2, 0, 1, 0, 2, 0, 2}}}, a_start(), {4, 7}}
                                      .encode());
  check_bounds<GenerationMessage>(
      GenerationMessage{GenerationMessage::Kind::kBroken, 0, "rank 1 was killed", {}, std::nullopt, {}}.encode());
  check_bounds<JoinedMessage>(JoinedMessage{3, 1, true}.encode());
  check_bounds<StopMessage>(StopMessage{15, 100, {2, 3}}.encode());
  check_bounds<FailingMessage>(FailingMessage{1, {hvd::FailureNews::Kind::kOver, 2, 1, "it was lost"}}.encode());
  check_bounds<ExitedMessage>(ExitedMessage{1, {ExitStatus::Kind::kSignalled, 9}, {"killed", "in /core"}}.encode());
  check_bounds<ExchangeMessage>(ExchangeMessage{1, "k", "v", 2}.encode());
  check_bounds<ExchangedMessage>(ExchangedMessage{"k", {"a", ""}}.encode());
  check_bounds<StartFailedMessage>(StartFailedMessage{1, hvd::Error(hvd::Code::kNotFound, "no"), "/there"}.encode());
}

TEST_CASE("random bytes never become a message with more items than bytes") {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string body;
    for (std::size_t n = random() % 64; n > 0; --n) {
      body += static_cast<char>(random() % 3 == 0 ? random() : 0);
    }
    if (const auto start = StartMessage::decode(body); start.ok()) {
      CHECK(start.value().argv.size() <= body.size());
    }
    CHECK((ExchangedMessage::decode(body).ok() || true));
    if (const auto output = OutputMessage::decode(body); output.ok()) {
      CHECK(output.value().bytes.size() + 5 == body.size());
    }
  }
}

}  // namespace hvd::launch::messages_test
