// NodeCheck is the agent's part when a node is checked: it answers the questions kAskClock, kAskSurvey and kAskProbe.
// Nothing here waits: work that may take long is an errand.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/survey/errand.h"
#include "launcher/wire/check_messages.h"
#include "runtime/base/frame.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class NodeCheck {
 public:
  struct Node {
    std::vector<std::string> environment;  // the agent's own
    JobSecret secret{};
    // Returns the environment that the ranks of such a job would have.
    std::function<std::vector<std::string>(const StartMessage&)> environment_of;
    std::function<void(AgentMessage, std::string_view body)> send;
  };

  NodeCheck(EventLoop& loop, Node node) : loop_(loop), node_(std::move(node)) {}

  static constexpr bool is_question(AgentMessage type) {
    return type == AgentMessage::kAskClock || type == AgentMessage::kAskSurvey || type == AgentMessage::kAskProbe;
  }
  // An error is the launcher's fault, and ends the session.
  Result<void> on_question(AgentMessage type, std::string_view body);

 private:
  Result<void> on_ask_clock(std::string_view body);
  Result<void> on_ask_survey(std::string_view body);
  Result<void> on_ask_probe(std::string_view body);
  Result<void> answer_software(const SurveyRequest& request);
  Result<void> begin_probe(const ProbeRequest& request);

  EventLoop& loop_;
  const Node node_;
  std::unique_ptr<Errand> survey_;
  std::unique_ptr<Errand> probe_;  // one at a time: what is measured is not to be shared
};

}  // namespace hvd::launch
