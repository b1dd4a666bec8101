#include "launcher/check/link_check.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/text.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// Two agents get this long after a probe's deadline to report on it.
constexpr Duration kAnswerSlack = std::chrono::seconds(2);

}  // namespace

LinkCheck::LinkCheck(EventLoop& loop, std::vector<Host> hosts, Duration patience, Sink sink)
    : loop_(loop),
      hosts_(std::move(hosts)),
      patience_(patience),
      sink_(std::move(sink)),
      rounds_(plan_links(static_cast<int>(hosts_.size()))) {
  // Turn indexes into the list of hosts into node indexes.
  for (LinkRound& round : rounds_) {
    for (auto& [a, b] : round) {
      a = hosts_[static_cast<std::size_t>(a)].node;
      b = hosts_[static_cast<std::size_t>(b)].node;
    }
  }
}

LinkCheck::~LinkCheck() {
  give_up();
}

void LinkCheck::start() {
  next_round();
}

void LinkCheck::next_round() {
  if (is_over_) {
    return;
  }
  while (round_ < rounds_.size() && rounds_[round_].empty()) {
    ++round_;  // all hosts of this round are lost
  }
  if (round_ == rounds_.size()) {
    is_over_ = true;
    sink_.on_done();
    return;
  }
  const LinkRound& round = rounds_[round_++];
  sink_.on_round(static_cast<int>(round_), static_cast<int>(rounds_.size()));
  for (const auto& [a, b] : round) {
    begin(a, b, false);
  }
}

const std::string& LinkCheck::address_of(int node) const {
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), [node](const Host& host) { return host.node == node; });
  HVD_CHECK(found != hosts_.end());
  return found->address;
}

void LinkCheck::begin(int from, int to, bool is_second) {
  const std::uint32_t number = next_number_++;
  Probe probe;
  probe.link.from = from;
  probe.link.to = to;
  probe.link.was_tried = true;
  probe.is_second = is_second;
  probe.timer = loop_.after(patience_ + kAnswerSlack, [this, number] {
    probes_.at(number).timer = 0;
    finish(number, "its agents did not answer within " + duration_text(patience_ + kAnswerSlack));
  });
  probes_.emplace(number, probe);
  ProbeRequest request;
  request.number = number;
  request.from = from;
  request.to = to;
  request.address = address_of(to);
  request.patience_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count());
  sink_.send(to, AgentMessage::kAskProbe, request.encode());
}

void LinkCheck::on_listening(int node, const ListeningMessage& listening) {
  const auto found = probes_.find(listening.number);
  if (found == probes_.end() || found->second.link.to != node) {
    return;  // the probe was given up
  }
  const CheckedLink& link = found->second.link;
  const auto address = SocketAddress::make(address_of(link.to), static_cast<std::uint16_t>(listening.port));
  if (!listening.error.empty() || !address.ok()) {
    return finish(listening.number,
                  "it cannot listen there: " + (address.ok() ? listening.error : address.error().message()));
  }
  ProbeRequest request;
  request.number = listening.number;
  request.dials = true;
  request.from = link.from;
  request.to = link.to;
  request.address = address.value().text();
  request.patience_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count());
  sink_.send(link.from, AgentMessage::kAskProbe, request.encode());
}

void LinkCheck::on_probed(int node, const ProbeResult& result) {
  const auto found = probes_.find(result.number);
  if (found == probes_.end() || node != (result.dialed ? found->second.link.from : found->second.link.to)) {
    return;
  }
  Probe& probe = found->second;
  if (!result.dialed) {
    // The agent that dialed knows why nothing came; the one that listened does not.
    probe.has_listened = true;
    if (result.bytes > 0 && result.stream_time > Duration::zero()) {
      probe.link.bytes_per_second =
          static_cast<double>(result.bytes) / std::chrono::duration<double>(result.stream_time).count();
    }
  } else {
    probe.has_dialed = true;
    probe.link.stage = result.stage;
    probe.link.error = result.error;
    probe.link.round_trip = result.round_trip;
    if (!result.error.empty() && result.stage < ProbeStage::kStream) {
      return finish(result.number, result.error);
    }
  }
  finish_if_whole(result.number);
}

void LinkCheck::finish_if_whole(std::uint32_t number) {
  Probe& probe = probes_.at(number);
  if (!probe.has_dialed || !probe.has_listened) {
    return;
  }
  // When some bytes came, but not all of them in time, the link is slow rather than broken. Their number gives its
  // speed.
  finish(number, probe.link.bytes_per_second > 0 ? "" : probe.link.error);
}

void LinkCheck::finish(std::uint32_t number, const std::string& error) {
  const auto found = probes_.find(number);
  Probe probe = std::move(found->second);
  probes_.erase(found);
  loop_.cancel(probe.timer);
  probe.link.error = error;
  probe.link.stage = error.empty() ? ProbeStage::kDone : probe.link.stage;
  const int from = probe.link.from;
  const int to = probe.link.to;
  done_[{from, to}] = std::move(probe.link);
  if (!probe.is_second) {
    begin(to, from, true);
  } else if (probes_.empty()) {
    next_round();
  }
}

void LinkCheck::on_lost(int node, const std::string& why) {
  std::vector<std::uint32_t> lost;
  for (const auto& [number, probe] : probes_) {
    if (probe.link.from == node || probe.link.to == node) {
      lost.push_back(number);
    }
  }
  for (LinkRound& round : rounds_) {
    std::erase_if(round, [node](const auto& pair) { return pair.first == node || pair.second == node; });
  }
  for (const std::uint32_t number : lost) {
    probes_.at(number).is_second = true;  // keeps the other direction from being tried
    finish(number, why);
  }
}

void LinkCheck::give_up() {
  is_over_ = true;
  for (auto& [number, probe] : probes_) {
    loop_.cancel(probe.timer);
    probe.link.was_tried = false;
  }
}

std::vector<CheckedLink> LinkCheck::links() const {
  std::map<std::pair<int, int>, CheckedLink> all = done_;
  for (const LinkRound& round : rounds_) {
    for (const auto& [a, b] : round) {
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        CheckedLink untried;
        untried.from = from;
        untried.to = to;
        all.emplace(std::pair(from, to), untried);
      }
    }
  }
  std::vector<CheckedLink> links;
  for (auto& [pair, link] : all) {
    links.push_back(std::move(link));
  }
  return links;
}

}  // namespace hvd::launch
