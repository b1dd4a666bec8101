#include "launcher/sessions/session_inbox.h"

#include <string>

#include "launcher/wire/messages.h"
#include "launcher/wire/sample_messages.h"
#include "runtime/base/bytes.h"

namespace hvd::launch {

Result<void> SessionInbox::check_rank(int rank) const {
  const bool is_ours = rank >= plan_.ranks.front().rank && rank <= plan_.ranks.back().rank && rank < job_size_;
  if (!is_ours) {
    return Error(Code::kProtocol, "the agent speaks of rank " + std::to_string(rank) + ", which is not on this node");
  }
  return {};
}

template <typename Message>
Result<void> SessionInbox::of_rank(const Frame& frame, void (SessionSink::*tell)(const Message&)) const {
  HVD_TRY_ASSIGN(const Message message, Message::decode(frame.body));
  HVD_TRY(check_rank(message.rank));
  (sink_.*tell)(message);
  return {};
}

Result<void> SessionInbox::deliver(const Frame& frame) const {
  switch (static_cast<AgentMessage>(frame.type)) {
    case AgentMessage::kStarted: {
      ByteReader in(frame.body);
      const int rank = in.i32();
      const int pid = in.i32();
      HVD_TRY(check_rank(rank));
      sink_.on_started(rank, pid);
      return {};
    }
    case AgentMessage::kStartFailed:
      return of_rank(frame, &SessionSink::on_start_failed);
    case AgentMessage::kOutput: {
      HVD_TRY_ASSIGN(const OutputMessage output, OutputMessage::decode(frame.body));
      HVD_TRY(check_rank(output.rank));
      sink_.on_output(plan_.index, output);
      return {};
    }
    case AgentMessage::kOutputEnd: {
      HVD_TRY_ASSIGN(const OutputMessage end, OutputMessage::decode(frame.body));
      HVD_TRY(check_rank(end.rank));
      sink_.on_output_end(end.rank, end.stream);
      return {};
    }
    case AgentMessage::kInputCredit: {
      HVD_TRY_ASSIGN(const std::uint64_t bytes, decode_count(frame.body));
      sink_.on_input_credit(plan_.index, bytes);
      return {};
    }
    case AgentMessage::kInputOver:
      sink_.on_input_over(plan_.index);
      return {};
    case AgentMessage::kFailing:
      return of_rank(frame, &SessionSink::on_failing);
    case AgentMessage::kExited:
      return of_rank(frame, &SessionSink::on_exited);
    case AgentMessage::kExchange:
      return of_rank(frame, &SessionSink::on_exchange);
    case AgentMessage::kProblem:
      sink_.on_problem(plan_.index, frame.body);
      return {};
    case AgentMessage::kEnding:
      sink_.on_ending(plan_.index, frame.body);
      return {};
    case AgentMessage::kLeaving:
      sink_.on_leaving(plan_.index, frame.body);
      return {};
    case AgentMessage::kSuspended:
      sink_.on_suspended(plan_.index);
      return {};
    case AgentMessage::kSample: {
      HVD_TRY_ASSIGN(const SampleMessage sample, SampleMessage::decode(frame.body));
      for (const RankSample& rank : sample.ranks) {
        HVD_TRY(check_rank(rank.rank));
      }
      sink_.on_sample(plan_.index, sample);
      return {};
    }
    case AgentMessage::kDone:
      sink_.on_done(plan_.index);
      return {};
    case AgentMessage::kJoined:
      return of_rank(frame, &SessionSink::on_joined);
    case AgentMessage::kClock:
    case AgentMessage::kSystem:
    case AgentMessage::kSoftware:
    case AgentMessage::kListening:
    case AgentMessage::kProbed:
    case AgentMessage::kStacks:
    case AgentMessage::kResultList:
    case AgentMessage::kResultBytes:
      return sink_.on_answer(plan_.index, static_cast<AgentMessage>(frame.type), frame.body);
    default:
      return Error(Code::kProtocol,
                   "its agent sent a message of type " + std::to_string(frame.type) + ", which is not for a launcher");
  }
}

}  // namespace hvd::launch
