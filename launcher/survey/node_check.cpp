#include "launcher/survey/node_check.h"

#include <algorithm>

#include "launcher/survey/link_probe.h"
#include "launcher/survey/own_software.h"
#include "launcher/survey/own_system.h"
#include "runtime/base/clock.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// An errand gets this beyond its own deadline, to report its result.
constexpr Duration kErrandSlack = std::chrono::milliseconds(500);

}  // namespace

Result<void> NodeCheck::on_question(AgentMessage type, std::string_view body) {
  switch (type) {
    case AgentMessage::kAskClock:
      return on_ask_clock(body);
    case AgentMessage::kAskSurvey:
      return on_ask_survey(body);
    case AgentMessage::kAskProbe:
      return on_ask_probe(body);
    default:
      return Error(Code::kProtocol, "no question of a check");
  }
}

Result<void> NodeCheck::on_ask_clock(std::string_view body) {
  HVD_TRY_ASSIGN(const std::int32_t number, decode_number(body));
  node_.send(AgentMessage::kClock, ClockMessage{static_cast<std::uint32_t>(number), unix_ns()}.encode());
  return {};
}

Result<void> NodeCheck::on_ask_survey(std::string_view body) {
  HVD_TRY_ASSIGN(const SurveyRequest request, SurveyRequest::decode(body));
  node_.send(AgentMessage::kSystem, own_system().encode());
  if (const auto started = answer_software(request); !started.ok()) {
    SoftwareSurvey nothing;
    nothing.error = started.error().message();
    node_.send(AgentMessage::kSoftware, nothing.encode());
  }
  return {};
}

Result<void> NodeCheck::answer_software(const SurveyRequest& request) {
  const std::vector<std::string> environment = node_.environment_of(request.start);
  const auto work = [&](int) { return own_software(request, environment, node_.environment).encode(); };
  const auto done = [this](const Result<std::string>& answer) {
    SoftwareSurvey nothing;
    nothing.error = answer.ok() ? "" : answer.error().message();
    node_.send(AgentMessage::kSoftware, answer.ok() ? answer.value() : nothing.encode());
  };
  const Duration patience = std::chrono::milliseconds(request.patience_ms) + kErrandSlack;
  HVD_TRY_ASSIGN(survey_, Errand::start(loop_, patience, Fd(), work, done));
  return {};
}

Result<void> NodeCheck::on_ask_probe(std::string_view body) {
  HVD_TRY_ASSIGN(const ProbeRequest request, ProbeRequest::decode(body));
  probe_.reset();
  if (const auto begun = begin_probe(request); !begun.ok()) {
    if (request.dials) {
      ProbeResult result;
      result.number = request.number;
      result.dialed = true;
      result.error = begun.error().message();
      node_.send(AgentMessage::kProbed, result.encode());
    } else {
      node_.send(AgentMessage::kListening, ListeningMessage{request.number, 0, begun.error().message()}.encode());
    }
  }
  return {};
}

Result<void> NodeCheck::begin_probe(const ProbeRequest& request) {
  Fd listener;
  std::int32_t port = 0;
  if (!request.dials) {
    HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::make(request.address, 0));
    HVD_TRY_ASSIGN(listener, listen_tcp(address));
    HVD_TRY_ASSIGN(const SocketAddress bound, SocketAddress::local_of(listener.get()));
    port = bound.port();
  }
  const Duration patience = std::chrono::milliseconds(request.patience_ms);
  const auto work = [&](int fd) {
    const Deadline deadline = Deadline::after(patience);
    return (request.dials ? dial_probe(request, node_.secret, deadline)
                          : answer_probe(fd, request, node_.secret, deadline))
        .encode();
  };
  const auto done = [this, request](const Result<std::string>& answer) {
    ProbeResult lost;
    lost.number = request.number;
    lost.dialed = request.dials;
    lost.error = answer.ok() ? "" : answer.error().message();
    node_.send(AgentMessage::kProbed, answer.ok() ? answer.value() : lost.encode());
  };
  HVD_TRY_ASSIGN(probe_, Errand::start(loop_, patience + kErrandSlack, std::move(listener), work, done));
  if (!request.dials) {
    node_.send(AgentMessage::kListening, ListeningMessage{request.number, port, ""}.encode());
  }
  return {};
}

}  // namespace hvd::launch
