// A running hvdrun and another command of the same user say this to each other over a unix socket: frames
// (base/frame.h) of the types below. One caller asks one question on one connection.
//
// The answer to a question is one message or a stream of several, and then kOver. A question that cannot be answered
// gets kRefused instead. The connection ends after either. A caller that has enough closes it, and the stream ends.
//
// A new question: two numbers here, its messages in this file, and LiveServer::on_question() in the part that answers
// it. Every decoder is total. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/wire/fields.h"
#include "launcher/wire/stack_messages.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Of the version, since two programs that talk may be of different ones; it grows with each change of a message.
inline constexpr FrameSpec kLiveFrames{0x4c445648U /* "HVDL" */, 1, 64U << 20U, "running-job"};

enum class LiveMessage : std::uint16_t {
  kOver = 1,     // empty: nothing more comes
  kRefused = 2,  // text: why there is no answer

  kAskJob = 10,     // empty: which job is this?
  kAskStacks = 11,  // StacksQuestion
  kAskStatus = 12,  // the question of `hvdrun top`

  kJob = 20,     // LiveJob
  kStacks = 21,  // StacksAnswer
  kStatus = 22,  // one state of the job
};

// LiveJob is what a running job says of itself.
struct LiveJob {
  std::string id;    // as hvdrun made it: eight hexadecimal digits
  std::string name;  // of a job that was given one; else empty
  std::string uuid;  // of a submitted job; else empty
  std::int32_t pid = 0;
  std::int32_t size = 0;  // ranks
  std::string command;    // of its ranks, as one line
  std::string cwd;

  static void fields(auto& m, auto& walk) { walk(m.id, m.name, m.uuid, m.pid, m.size, m.command, m.cwd); }
  [[nodiscard]] std::string encode() const;
  static Result<LiveJob> decode(std::string_view body);
};

struct StacksQuestion {
  bool is_native = false;

  static void fields(auto& m, auto& walk) { walk(m.is_native); }
  [[nodiscard]] std::string encode() const;
  static Result<StacksQuestion> decode(std::string_view body);
};

struct StacksAnswer {
  std::int32_t running = 0;  // ranks; those that did not answer are missing below
  std::vector<RankStacks> stacks;

  static void fields(auto& m, auto& walk) { walk(m.running, m.stacks); }
  [[nodiscard]] std::string encode() const;
  static Result<StacksAnswer> decode(std::string_view body);
};

}  // namespace hvd::launch
