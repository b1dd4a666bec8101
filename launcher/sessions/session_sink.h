// SessionSink receives what sessions report; `node` is the index in the placement. It is never called from inside a
// call to the session.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/wire/messages.h"
#include "launcher/wire/sample_messages.h"
#include "runtime/base/clock.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void on_ready(int node, const ReadyMessage& ready) = 0;
  virtual void on_progress(int node, const std::string& what) = 0;
  virtual void on_notice(int node, const std::string& what) = 0;
  // The node's connection broke. The session reconnects for as long as `patience`; then on_back or on_lost follows.
  virtual void on_away(int node, const Error& why, Duration patience) = 0;
  virtual void on_back(int node, Duration away) = 0;
  virtual void on_started(int rank, int pid) = 0;
  // The rank's runtime has connected to its agent, and is about to meet the others.
  virtual void on_joined(const JoinedMessage& joined) = 0;
  virtual void on_start_failed(const StartFailedMessage& failed) = 0;
  virtual void on_output(int node, const OutputMessage& output) = 0;
  virtual void on_output_end(int rank, StreamId stream) = 0;
  // The node's ranks can take this many more bytes of standard input; on_input_over: none of them takes any more.
  virtual void on_input_credit(int /*node*/, std::uint64_t /*bytes*/) {}
  virtual void on_input_over(int /*node*/) {}
  // The rank reported a failure. Whether and when it ends is reported separately, by on_exited.
  virtual void on_failing(const FailingMessage& /*failing*/) {}
  virtual void on_exited(const ExitedMessage& exited) = 0;
  virtual void on_exchange(const ExchangeMessage& exchange) = 0;
  virtual void on_problem(int node, const std::string& text) = 0;
  // The agent is about to end, because somebody other than us asked it to.
  virtual void on_ending(int node, const std::string& why) = 0;
  // The agent asks that its ranks leave the others when it suits these.
  virtual void on_leaving(int /*node*/, const std::string& /*why*/) {}
  // A Relay frame arrived, which belongs to a node that is reached through this one.
  virtual Result<void> on_relay(int node, const Frame& frame) = 0;
  // The node's ranks are stopped until Continue is sent.
  virtual void on_suspended(int /*node*/) {}
  // The agent tells what its node's ranks use and do, once it was asked to watch them.
  virtual void on_sample(int /*node*/, const SampleMessage& /*sample*/) {}
  virtual void on_done(int node) = 0;
  // An agent answered a question of `hvdrun check` (launcher/wire/check_messages.h), one about stacks
  // (stack_messages.h), or what it was told of a folder (tree_messages.h). An error ends the session.
  virtual Result<void> on_answer(int node, AgentMessage type, const std::string& body);
  // The session is over: it was never opened, it broke, or it was refused for what the agent sent.
  virtual void on_lost(int node, const Error& why) = 0;

 protected:
  SessionSink() = default;
  SessionSink(const SessionSink&) = default;
  SessionSink& operator=(const SessionSink&) = default;
};

}  // namespace hvd::launch
