// runtime/engine/end_of_job: how a job ends for one rank, told as events and actions; no process and no socket.
#include "runtime/engine/end_of_job.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::end_of_job_test {
namespace {

Error lost(const std::string& words) {
  return {Code::kLostPeer, words};
}

std::string text_of(const AwaitCause& action) {
  return "await cause " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(action.limit).count());
}
std::string text_of(const AwaitOthers& action) {
  return "await others " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(action.limit).count());
}
std::string text_of(const AskToLeave& /*action*/) {
  return "ask to leave";
}
std::string text_of(const PassOn& action) {
  return "pass on " + action.cause;
}
std::string text_of(const CloseJob& action) {
  return action.is_orderly ? "close in order" : "close";
}
std::string text_of(const TellAgent& action) {
  return "tell agent by " + std::to_string(action.by) + ": " + action.cause;
}
std::string text_of(const TellOnceNoticed& action) {
  return "tell once noticed by " + std::to_string(action.by) + ": " + action.cause;
}
std::string text_of(const TellIfPending& /*action*/) {
  return "tell if pending";
}
std::string text_of(const CloseOutput& /*action*/) {
  return "close output";
}
std::string text_of(const FailPending& /*action*/) {
  return "fail pending";
}

using Texts = std::vector<std::string>;

Texts texts_of(const EndActions& actions) {
  Texts texts;
  for (const EndAction& action : actions) {
    texts.push_back(std::visit([](const auto& one) { return text_of(one); }, action));
  }
  return texts;
}

}  // namespace

TEST_CASE("a connection that breaks is a suspicion, and becomes the cause when no better one comes") {
  EndOfJob end(1, 4);
  CHECK(texts_of(end.on_link_end(3, lost("rank 3 closed its connection"))) == Texts{"await cause 1000"});
  CHECK(end.is_suspicious());
  CHECK_FALSE(end.over().has_value());
  CHECK(texts_of(end.on_cause_due()) == Texts{"pass on rank 3 closed its connection",
                                              "tell agent by 3: rank 3 closed its connection", "close",
                                              "close output"});
  REQUIRE(end.over().has_value());
  CHECK(end.over()->message() == "rank 3 closed its connection");
  CHECK(end.error_of("x").message() == "rank 3 closed its connection");
}

TEST_CASE("the agent's notice is a better cause than the connection that broke before it") {
  EndOfJob end(1, 4);
  static_cast<void>(end.on_link_end(3, lost("rank 3 closed its connection")));
  CHECK(texts_of(end.on_notice("rank 3 was killed by SIGKILL")) ==
        Texts{"pass on rank 3 was killed by SIGKILL", "tell agent by -1: rank 3 was killed by SIGKILL", "close",
              "close output"});
  // The timer may fire in the same turn of the loop.
  CHECK(end.on_cause_due().empty());
  CHECK(end.error_of("x").message() == "rank 3 was killed by SIGKILL");
}

TEST_CASE("only the first suspicion counts, and only the first cause") {
  EndOfJob end(0, 4);
  static_cast<void>(end.suspect(lost("rank 2 closed its connection"), 2));
  CHECK(end.suspect(lost("rank 3 closed its connection"), 3).empty());
  CHECK(texts_of(end.on_cause_due()).front() == "pass on rank 2 closed its connection");
  CHECK(end.fail(lost("another")).empty());
  CHECK(end.on_abort("another").empty());
  CHECK(end.on_notice("another").empty());
  CHECK(end.shut_down(3).empty());
  CHECK(end.suspect(lost("another")).empty());
  CHECK(end.over()->message() == "rank 2 closed its connection");
}

TEST_CASE("a timer that fires without a suspicion ends nothing") {
  EndOfJob end(0, 2);
  CHECK(end.on_cause_due().empty());
  CHECK_FALSE(end.over().has_value());
}

TEST_CASE("a link that breaks the protocol ends the job at once") {
  EndOfJob end(0, 2);
  const Error why(Code::kProtocol, "rank 1 sent a frame of unknown type 77");
  // It is a failure of its own and follows no other, so that the launcher need not look for another cause.
  CHECK(texts_of(end.on_link_end(1, why)) ==
        Texts{"pass on rank 1 sent a frame of unknown type 77", "close", "close output"});
  CHECK(end.over()->code() == Code::kProtocol);
  EndOfJob stalled(0, 3);
  CHECK_FALSE(stalled.fail(Error(Code::kTimeout, "rank 1 did not come")).empty());
  CHECK(stalled.over()->code() == Code::kLostPeer);
  EndOfJob other(0, 3);
  CHECK_FALSE(other.fail(Error(Code::kInvalid, "no")).empty());
  CHECK(other.over()->code() == Code::kSystem);
}

TEST_CASE("the cause that another rank has sent is passed on, and the agent is told that this rank only follows") {
  EndOfJob end(0, 3);
  CHECK(texts_of(end.on_abort("rank 2: out of memory")) ==
        Texts{"pass on rank 2: out of memory", "tell agent by -1: rank 2: out of memory", "close", "close output"});
}

TEST_CASE("a rank that said goodbye may close its connection") {
  EndOfJob end(0, 3);
  end.on_goodbye(2);
  CHECK(end.on_link_end(2, lost("closed")).empty());
  CHECK_FALSE(end.is_suspicious());
  CHECK_FALSE(end.on_link_end(1, lost("closed")).empty());
}

TEST_CASE("a rank that leaves asks for it, runs what was decided, and waits for the others") {
  EndOfJob end(1, 2);
  CHECK(texts_of(end.leave()) == Texts{"await others 5000", "ask to leave"});
  CHECK(end.is_leaving());
  CHECK(end.leave().empty());
  CHECK_FALSE(end.is_finished(true));  // what comes before the end in the order is still to be run
  // The agent is not told: this rank's program knows that it ends.
  CHECK(texts_of(end.shut_down(1)) == Texts{"close in order", "fail pending"});
  CHECK(end.error_of("x").code() == Code::kCancelled);
  CHECK(end.error_of("x").message() == "hvd_shutdown was called while 'x' was pending");
  CHECK_FALSE(end.is_finished(false));
  CHECK(end.is_finished(true));
}

TEST_CASE("the others learn who left, and the agent learns it if the program waits for something") {
  EndOfJob end(0, 3);
  CHECK(texts_of(end.shut_down(2)) == Texts{"tell once noticed by 2: Horovod has been shut down by rank 2",
                                            "close in order", "tell if pending", "fail pending"});
  CHECK(end.error_of("x").code() == Code::kLostPeer);
  CHECK(end.error_of("x").message() == "Horovod has been shut down by rank 2 before all ranks took part in 'x'");
  CHECK_FALSE(end.is_finished(true));  // its own program has not left
  CHECK(texts_of(end.leave()) == Texts{"await others 5000"});
  CHECK(end.is_finished(true));
}

TEST_CASE("ranks say goodbye once after an orderly end, the coordinator after all others") {
  EndOfJob other(1, 3);
  CHECK_FALSE(other.take_goodbye(true));
  static_cast<void>(other.shut_down(2));
  CHECK(other.take_goodbye(false));
  CHECK_FALSE(other.take_goodbye(true));

  EndOfJob coordinator(0, 3);
  static_cast<void>(coordinator.shut_down(2));
  CHECK_FALSE(coordinator.take_goodbye(false));
  CHECK(coordinator.take_goodbye(true));
  CHECK_FALSE(coordinator.take_goodbye(true));
}

TEST_CASE("a coordinator that leaves before the others have ended says goodbye, so that nobody takes it for dead") {
  EndOfJob end(0, 3);
  static_cast<void>(end.leave());
  static_cast<void>(end.shut_down(0));
  CHECK_FALSE(end.take_goodbye(false));
  CHECK(end.on_leave_due().empty());
  CHECK(end.take_goodbye(false));
  CHECK(end.is_finished(false));
}

TEST_CASE("nobody says goodbye after a failure") {
  EndOfJob end(1, 3);
  static_cast<void>(end.on_abort("out of memory"));
  CHECK_FALSE(end.take_goodbye(true));
}

TEST_CASE("a leaving rank that waits too long for the others ends the job by itself") {
  EndOfJob end(1, 2);
  static_cast<void>(end.leave());
  CHECK(texts_of(end.on_leave_due()) == Texts{"pass on Horovod has been shut down by rank 1", "close", "close output"});
  CHECK(end.is_finished(false));  // it does not wait for the links either
}

TEST_CASE("a rank that leaves after a failure waits a moment for the others, but not where the agents have told them") {
  EndOfJob end(1, 2);
  static_cast<void>(end.on_abort("out of memory"));
  CHECK(texts_of(end.leave()) == Texts{"await others 1000"});
  CHECK_FALSE(end.is_finished(false));
  CHECK(end.on_leave_due().empty());
  CHECK(end.is_finished(false));

  EndOfJob told(1, 2);
  static_cast<void>(told.on_notice("rank 0 exited with 3"));
  CHECK(texts_of(told.leave()) == Texts{"await others 0"});

  // A notice that comes after the abort says the same to all ranks.
  EndOfJob late(1, 2);
  static_cast<void>(late.on_abort("out of memory"));
  static_cast<void>(late.on_notice("rank 0 exited with 3"));
  CHECK(texts_of(late.leave()) == Texts{"await others 0"});
}

TEST_CASE("a failure while this rank leaves is not reported to the agent") {
  EndOfJob end(1, 2);
  static_cast<void>(end.leave());
  CHECK(texts_of(end.on_link_end(0, lost("rank 0 closed its connection"))) == Texts{"await cause 1000"});
  CHECK(texts_of(end.on_cause_due()) == Texts{"pass on rank 0 closed its connection", "close", "close output"});
  CHECK(end.error_of("x").message() == "hvd_shutdown was called while 'x' was pending");
}

}  // namespace hvd::end_of_job_test
