// NodeReports receives what the sessions of a job report, and hands each report to the part of the job whose it is.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/run/away_nodes.h"
#include "launcher/run/engine_run.h"
#include "launcher/run/job_ending.h"
#include "launcher/run/job_parts.h"
#include "launcher/run/job_start.h"
#include "launcher/run/moving_hosts.h"
#include "launcher/run/stack_rounds.h"
#include "launcher/sessions/node_session.h"
#include "launcher/sessions/relay_tree.h"
#include "launcher/sessions/suspension.h"

namespace hvd::launch {

class NodeReports final : public SessionSink {
 public:
  struct Receivers {
    JobStart& start;
    JobEnding& ending;
    MovingHosts& hosts;
    EngineRun& engine;
    AwayNodes& away;
    RelayTree& tree;
    Suspension& suspension;
    StackRounds& stacks;
    JobWatch& watch;
  };

  NodeReports(const JobParts& job, const Receivers& to) : job_(job), to_(to) {}

  void on_ready(int node, const ReadyMessage& ready) override;
  void on_progress(int node, const std::string& what) override;
  void on_notice(int node, const std::string& what) override;
  void on_away(int node, const Error& why, Duration patience) override;
  void on_back(int node, Duration away) override;
  void on_started(int rank, int pid) override;
  void on_joined(const JoinedMessage& joined) override;
  void on_start_failed(const StartFailedMessage& failed) override;
  void on_output(int node, const OutputMessage& output) override;
  void on_output_end(int rank, StreamId stream) override;
  void on_input_credit(int node, std::uint64_t bytes) override;
  void on_input_over(int node) override;
  void on_failing(const FailingMessage& failing) override;
  void on_exited(const ExitedMessage& exited) override;
  void on_exchange(const ExchangeMessage& exchange) override;
  void on_problem(int node, const std::string& text) override;
  void on_ending(int node, const std::string& why) override;
  void on_leaving(int node, const std::string& why) override;
  Result<void> on_relay(int node, const Frame& frame) override;
  void on_suspended(int node) override;
  void on_sample(int node, const SampleMessage& sample) override;
  void on_done(int node) override;
  Result<void> on_answer(int node, AgentMessage type, const std::string& body) override;
  void on_lost(int node, const Error& why) override;

 private:
  const JobParts& job_;
  const Receivers to_;
};

}  // namespace hvd::launch
