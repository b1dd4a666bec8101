#include "launcher/sessions/relay_tree.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "launcher/command/rsh.h"
#include "launcher/command/rsh_template.h"
#include "launcher/command/system_ssh.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {
namespace {

// A relayed connection may take one third of --start-timeout, so that there is time left to connect directly.
constexpr int kAnswerPart = 3;
constexpr std::size_t kHandshakesPerRelay = 8;

}  // namespace

std::vector<int> relays_in_turn(int count, int fanout) {
  std::vector<int> relays(static_cast<std::size_t>(count), -1);
  if (fanout <= 0) {
    return relays;
  }
  std::int64_t above = 0;  // index of the first node of the level above
  std::int64_t width = 1;  // number of nodes in the level above; the launcher alone for the first level
  std::int64_t begin = 0;  // index of the first node of this level
  while (begin < count) {
    const std::int64_t end = std::min<std::int64_t>(count, begin + width * fanout);
    for (std::int64_t at = begin; at < end && begin > 0; ++at) {
      relays[static_cast<std::size_t>(at)] = static_cast<int>(above + (at - begin) % width);
    }
    above = begin;
    width = end - begin;
    begin = end;
  }
  return relays;
}

std::vector<int> relays_of(const JobSpec& spec, const Placement& agents) {
  std::vector<int> remote;
  for (const NodePlan& node : agents.nodes) {
    const TransportKind kind = choose_transport(spec, node.host);
    if (kind == TransportKind::kSsh || kind == TransportKind::kRsh) {
      remote.push_back(node.index);
    }
  }
  std::vector<int> relays(agents.nodes.size(), -1);
  const std::vector<int> in_turn = relays_in_turn(static_cast<int>(remote.size()), spec.fanout);
  for (std::size_t i = 0; i < remote.size(); ++i) {
    if (in_turn[i] >= 0) {
      relays[static_cast<std::size_t>(remote[i])] = remote[static_cast<std::size_t>(in_turn[i])];
    }
  }
  return relays;
}

RelayTree::RelayTree(EventLoop& loop, const JobSpec& spec, const Placement& agents, Send send, Log& log)
    : loop_(loop),
      spec_(spec),
      parents_(relays_of(spec, agents)),
      relays_(agents.nodes.size()),
      ways_(agents.nodes.size()) {
  std::size_t count = 0;
  for (const int parent : parents_) {
    if (parent < 0 || relays_[static_cast<std::size_t>(parent)] != nullptr) {
      continue;
    }
    relays_[static_cast<std::size_t>(parent)] =
        std::make_unique<Relay>(loop, agents.nodes[static_cast<std::size_t>(parent)].host.name,
                                [send, parent](AgentMessage type, std::string_view body) { send(parent, type, body); });
    ++count;
  }
  if (count > 0) {
    RshSettings settings;
    settings.agent_path = spec.agent_path;
    settings.answer_time = spec.start_timeout / kAnswerPart;
    settings.max_handshakes = kHandshakesPerRelay * count;
    shared_ = std::make_shared<RelayedShared>();
    shared_->rsh = std::make_shared<RshShared>(loop, std::move(settings), log);
    shared_->command_for = [this](const NodeTarget& target) { return command_for(target); };
  }
}

// Builds the command that the relaying node runs. The user's ssh settings and keys stay on this machine; the node's own
// ssh must do without them.
Result<RshCommand> RelayTree::command_for(const NodeTarget& target) const {
  if (spec_.rsh_command.empty()) {
    const SshRequest request{target.host, target.user, target.port != 0 ? target.port : spec_.ssh_port, "", ""};
    HVD_TRY(check_ssh_request(request));
    RshCommand command = system_ssh_command(request, ssh_connect_timeout({}, {}));
    command.label = "ssh";
    return command;
  }
  HVD_TRY_ASSIGN(const RshTemplate words, RshTemplate::parse(spec_.rsh_command));
  return rsh_command(words, target, spec_.ssh_port);
}

Transport& RelayTree::way_to(int node, Transport& direct) {
  const int parent = parent_of(node);
  if (parent < 0) {
    return direct;
  }
  auto& way = ways_[static_cast<std::size_t>(node)];
  way = std::make_unique<RelayedTransport>(loop_, *relays_[static_cast<std::size_t>(parent)], direct, shared_);
  return *way;
}

const std::string* RelayTree::relay_of(int node) const {
  const int parent = parent_of(node);
  return parent < 0 ? nullptr : &relays_[static_cast<std::size_t>(parent)]->host();
}

void RelayTree::change(int node, Relay::State state) {
  if (Relay* const relay = relay_at(node)) {
    relay->change(state);
  }
}

void RelayTree::set_processor(int node, const std::string& processor) {
  if (Relay* const relay = relay_at(node)) {
    relay->set_processor(processor);
  }
}

Result<void> RelayTree::on_frame(int node, const Frame& frame) {
  Relay* const relay = relay_at(node);
  if (relay == nullptr) {
    return Error(Code::kProtocol, "its agent relays, and was not asked to");
  }
  return relay->on_frame(frame);
}

}  // namespace hvd::launch
