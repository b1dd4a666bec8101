// CheckRunner carries out one check: it reaches all hosts, questions their agents (HostCheck), and has them measure the
// links between them (LinkCheck). A failure on one host is recorded and does not keep the others from being checked.
// Starts no rank.
//
// Every wait ends: hosts are reached and questioned within --start-timeout, and links measured within as much again.
// Thread: the one that calls run(); it becomes the loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/check/check_result.h"
#include "launcher/check/host_check.h"
#include "launcher/check/link_check.h"
#include "launcher/job/job_spec.h"
#include "launcher/run/job_runner.h"
#include "launcher/sessions/node_session.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// CheckSink receives the progress of the check.
struct CheckSink {
  std::function<void(const std::string& status)> on_status;  // one row, which replaces the one before
};

class CheckRunner final : private SessionSink {
 public:
  // `spec.launcher` is kOwn, also for a job under mpirun: its hosts are reached by ssh.
  CheckRunner(EventLoop& loop, const JobSpec& spec, const Placement& placement, Transports transports,
              bool wants_mpirun, CheckSink sink, Log& log);
  ~CheckRunner() override;
  CheckRunner(const CheckRunner&) = delete;
  CheckRunner& operator=(const CheckRunner&) = delete;

  // An error is a fault of this machine, not of a host.
  Result<CheckResult> run();
  // SIGINT, SIGTERM and SIGHUP end the check with what is known so far.
  void on_signal(int signo);

 private:
  void on_ready(int node, const ReadyMessage& ready) override;
  void on_progress(int node, const std::string& what) override;
  void on_notice(int node, const std::string& what) override;
  Result<void> on_answer(int node, AgentMessage type, const std::string& body) override;
  void on_lost(int node, const Error& why) override;
  void on_problem(int node, const std::string& text) override;
  void on_ending(int node, const std::string& why) override;
  // A check starts no ranks, so the agents send none of these events.
  void on_away(int, const Error&, Duration) override {}
  void on_back(int, Duration) override {}
  void on_started(int, int) override {}
  void on_start_failed(const StartFailedMessage&) override {}
  void on_output(int, const OutputMessage&) override {}
  void on_output_end(int, StreamId) override {}
  void on_exited(const ExitedMessage&) override {}
  void on_joined(const JoinedMessage& /*joined*/) override {}
  void on_exchange(const ExchangeMessage&) override {}
  void on_done(int) override {}
  Result<void> on_relay(int, const Frame&) override {
    return Error(Code::kProtocol, "it speaks of another node, which nobody asked it to reach");
  }

  void open_sessions();
  void go_on_if_settled();
  void on_reach_timeout();
  void measure_links();
  void finish();
  void stop_if_closed();
  void show_status();
  CheckedHost& host(int node) { return result_.hosts[static_cast<std::size_t>(node)]; }

  // constant after construction
  EventLoop& loop_;
  const JobSpec& spec_;
  const Placement& placement_;
  const Transports transports_;
  const CheckSink sink_;
  Log& log_;
  // loop only
  CheckResult result_;
  std::vector<HostCheck> checks_;  // one for each host
  std::vector<std::unique_ptr<NodeSession>> sessions_;
  std::unique_ptr<LinkCheck> links_;
  JobSecret secret_{};
  TimePoint began_;
  TimerId timer_ = 0;
  bool is_asking_ = true;  // false once links are being measured
  bool is_finishing_ = false;
};

}  // namespace hvd::launch
