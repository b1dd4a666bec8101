#include "launcher/check/check_runner.h"

#include <algorithm>

#include "launcher/run/start_plan.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {
namespace {

constexpr auto kHeartbeat = std::chrono::seconds(10);  // the same as in a job
// One direction of a link gets this long for the connection, round trips, and a fraction of a second of data; longer
// where --start-timeout is.
constexpr Duration kLinkTime = std::chrono::seconds(5);
constexpr int kLinkShare = 12;
// Agents get this long to end after their sessions were closed.
constexpr Duration kEndTime = std::chrono::seconds(2);

Duration link_time(Duration start_timeout) {
  return std::min(std::max(kLinkTime, start_timeout / kLinkShare), start_timeout);
}

std::uint32_t milliseconds(Duration duration) {
  return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

CheckRunner::CheckRunner(EventLoop& loop, const JobSpec& spec, const Placement& placement, Transports transports,
                         bool wants_mpirun, CheckSink sink, Log& log)
    : loop_(loop),
      spec_(spec),
      placement_(placement),
      transports_(transports),
      sink_(std::move(sink)),
      log_(log),
      began_(loop.now()) {
  result_.wants_mpirun = wants_mpirun;
  result_.gpus = spec.gpus;
  result_.names_program = !spec.argv.empty();
  for (const NodePlan& plan : placement.nodes) {
    CheckedHost checked;
    checked.plan = plan;
    checked.transport = transport_name(choose_transport(spec, plan.host));
    result_.hosts.push_back(std::move(checked));
  }
  for (CheckedHost& checked : result_.hosts) {
    const auto node = static_cast<std::size_t>(checked.plan.index);
    checks_.emplace_back(spec, wants_mpirun, checked, [this, node](AgentMessage type, const std::string& body) {
      sessions_[node]->send(type, body);
    });
  }
}

CheckRunner::~CheckRunner() {
  loop_.cancel(timer_);
}

Result<CheckResult> CheckRunner::run() {
  HVD_TRY_ASSIGN(secret_, make_nonce());  // needs the same randomness and length as a nonce
  timer_ = loop_.after(spec_.start_timeout, [this] { on_reach_timeout(); });
  open_sessions();
  show_status();
  HVD_TRY(loop_.run());
  sink_.on_status("");
  result_.took = loop_.now() - began_;
  return result_;
}

void CheckRunner::open_sessions() {
  SessionSink& sink = *this;
  for (const NodePlan& plan : placement_.nodes) {
    sessions_.push_back(std::make_unique<NodeSession>(loop_, plan, placement_.size, sink));
  }
  for (const auto& session : sessions_) {
    const TransportKind kind = choose_transport(spec_, session->plan().host);
    session->open(kind == TransportKind::kLocal ? *transports_.local
                  : kind == TransportKind::kRsh ? *transports_.rsh
                                                : *transports_.ssh);
  }
}

void CheckRunner::on_ready(int node, const ReadyMessage& ready) {
  NodeSession& session = *sessions_[static_cast<std::size_t>(node)];
  CheckedHost& checked = host(node);
  if (checked.error) {
    return;  // it comes after --start-timeout, and was told as one that does not answer
  }
  checked.ready = ready;
  checked.opened = session.opened();
  checked.reach_time = loop_.now() - began_;
  const bool is_local = checked.opened.is_local;
  WelcomeMessage welcome;
  welcome.job_id = "check";
  welcome.size = placement_.size;
  welcome.secret = secret_;
  welcome.heartbeat_ms = is_local ? 0 : milliseconds(kHeartbeat);
  if (!is_local) {
    session.watch_connection(kHeartbeat, Duration::zero(), "");
  }
  session.send(AgentMessage::kWelcome, welcome.encode());
  checks_[static_cast<std::size_t>(node)].begin();
  show_status();
}

Result<void> CheckRunner::on_answer(int node, AgentMessage type, const std::string& body) {
  HostCheck& check = checks_[static_cast<std::size_t>(node)];
  if (type == AgentMessage::kClock) {
    return check.on_answer(type, body);  // more are to come, so nothing is settled by it
  }
  if (type == AgentMessage::kListening && links_) {
    HVD_TRY_ASSIGN(const ListeningMessage listening, ListeningMessage::decode(body));
    links_->on_listening(node, listening);
  } else if (type == AgentMessage::kProbed && links_) {
    HVD_TRY_ASSIGN(const ProbeResult probed, ProbeResult::decode(body));
    links_->on_probed(node, probed);
  } else {
    HVD_TRY(check.on_answer(type, body));
  }
  go_on_if_settled();
  return {};
}

void CheckRunner::go_on_if_settled() {
  show_status();
  if (!is_asking_) {
    return;
  }
  if (std::all_of(checks_.begin(), checks_.end(), [](const HostCheck& check) { return check.is_settled(); })) {
    measure_links();
  }
}

void CheckRunner::on_reach_timeout() {
  timer_ = 0;
  for (const NodePlan& plan : placement_.nodes) {
    CheckedHost& checked = host(plan.index);
    if (!checked.error && !checked.ready) {
      const std::string& step = checks_[static_cast<std::size_t>(plan.index)].last_step();
      checked.error =
          Error(Code::kTimeout, "no answer within --start-timeout" + (step.empty() ? "" : " (last: " + step + ")") +
                                    "; is it up? try: ssh " + plan.host.name + " true");
    }
  }
  measure_links();
}

void CheckRunner::measure_links() {
  is_asking_ = false;
  loop_.cancel(timer_);
  std::vector<NodeView> views;
  std::vector<LinkCheck::Host> hosts;
  for (CheckedHost& checked : result_.hosts) {
    if (checked.ready && !checked.error) {
      const NodeView view{checked.opened, *checked.ready};
      if (const auto missing = missing_interface(view, checked.plan.host.name, spec_.interfaces); !missing.empty()) {
        checked.error = Error(Code::kResource, missing);
        continue;
      }
      views.push_back(NodeView{checked.opened, *checked.ready});
      hosts.push_back(LinkCheck::Host{checked.plan.index, ""});
    }
  }
  const std::vector<std::string> addresses = data_addresses(views, spec_.interfaces);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].address = addresses[i];
    host(hosts[i].node).address = addresses[i];
  }
  result_.has_all_pairs = static_cast<int>(hosts.size()) <= kMostHostsForAllPairs;
  LinkCheck::Sink sink;
  sink.send = [this](int node, AgentMessage type, const std::string& body) {
    sessions_[static_cast<std::size_t>(node)]->send(type, body);
  };
  sink.on_round = [this](int round, int rounds) {
    sink_.on_status("measuring the links between hosts, round " + std::to_string(round) + " of " +
                    std::to_string(rounds));
  };
  sink.on_done = [this] { finish(); };
  links_ = std::make_unique<LinkCheck>(loop_, std::move(hosts), link_time(spec_.start_timeout), std::move(sink));
  timer_ = loop_.after(spec_.start_timeout, [this] {
    timer_ = 0;
    finish();
  });
  links_->start();
}

void CheckRunner::finish() {
  if (is_finishing_) {
    return;
  }
  is_finishing_ = true;
  is_asking_ = false;
  loop_.cancel(timer_);
  if (links_) {
    links_->give_up();
    result_.links = links_->links();
  }
  for (const auto& session : sessions_) {
    session->close_input();
  }
  timer_ = loop_.after(kEndTime, [this] { loop_.stop(); });
  stop_if_closed();
}

void CheckRunner::stop_if_closed() {
  // A host that never became ready has no orderly end to wait for.
  const bool any_open = std::any_of(sessions_.begin(), sessions_.end(), [this](const auto& session) {
    return session->is_open() && host(session->plan().index).ready;
  });
  if (is_finishing_ && !any_open) {
    loop_.stop();
  }
}

void CheckRunner::on_lost(int node, const Error& why) {
  if (!is_finishing_) {
    CheckedHost& checked = host(node);
    checked.error = checked.error.value_or(why);
    if (links_) {
      links_->on_lost(node, "its agent was lost");
    }
    log_.write(LogLevel::kDebug, checked.name() + ": " + why.message());
    go_on_if_settled();
  }
  stop_if_closed();
}

void CheckRunner::on_progress(int node, const std::string& what) {
  log_.write(LogLevel::kDebug, host(node).name() + ": " + what);
  checks_[static_cast<std::size_t>(node)].on_progress(what);
  show_status();
}

void CheckRunner::on_notice(int node, const std::string& what) {
  host(node).notices.push_back(what);
}

void CheckRunner::on_problem(int node, const std::string& text) {
  host(node).notices.push_back(text);
}

void CheckRunner::on_ending(int node, const std::string& why) {
  on_lost(node, Error(Code::kLostPeer, "its agent was asked to end: " + why));
}

void CheckRunner::on_signal(int signo) {
  if (is_finishing_) {
    loop_.stop();
    return;
  }
  result_.interrupted_by = signo;
  for (CheckedHost& checked : result_.hosts) {
    if (!checked.ready && !checked.error) {
      checked.error = Error(Code::kCancelled, "it had not answered when the check was interrupted");
    }
  }
  finish();
}

void CheckRunner::show_status() {
  if (!is_asking_) {
    return;
  }
  std::size_t settled = 0;
  std::string waiting;
  for (const NodePlan& plan : placement_.nodes) {
    const HostCheck& check = checks_[static_cast<std::size_t>(plan.index)];
    if (check.is_settled()) {
      ++settled;
    } else if (waiting.empty()) {
      const std::string& step = check.last_step();
      waiting = "; waiting for " + plan.host.name +
                (host(plan.index).ready ? " (it is being asked)"
                 : step.empty()         ? ""
                                        : " (" + step + ")");
    }
  }
  sink_.on_status(std::to_string(settled) + "/" + std::to_string(placement_.nodes.size()) + " hosts checked" + waiting);
}

}  // namespace hvd::launch
