#include "launcher/wire/messages.h"

#include <algorithm>

namespace hvd::launch {
namespace {

bool is_cpu(std::int32_t number) {
  return number >= 0 && number < (1 << 16);
}

// None of the agent's own, and nothing elsewhere.
bool is_own_file(const std::string& name) {
  return name.starts_with("text-") && name.find_first_not_of("0123456789", 5) == std::string::npos;
}

bool is_start(const StartMessage& m) {
  bool has_readers = false;
  bool has_cpus = true;
  for (const StartMessage::Rank& rank : m.ranks) {
    has_readers = has_readers || rank.reads_input;
    has_cpus = has_cpus && std::all_of(rank.cpus.begin(), rank.cpus.end(), is_cpu);
  }
  const bool has_names =
      std::all_of(m.files.begin(), m.files.end(), [](const auto& file) { return is_own_file(file.first); });
  return has_cpus && has_names && are_valid(m.hosts) && !m.argv.empty() && !m.ranks.empty() &&
         (m.input_window > 0) == has_readers && m.input_window <= kInputWindow;
}

bool is_generation(const GenerationMessage& m) {
  const bool are_valid = std::all_of(m.members.begin(), m.members.end(),
                                     [](const auto& member) { return member.rank >= 0 && member.place.is_valid(); });
  const bool is_formed = m.kind == GenerationMessage::Kind::kFormed;
  const bool is_broken = m.kind == GenerationMessage::Kind::kBroken;
  return are_valid && (is_formed || m.members.empty()) && (!is_broken || !m.cause.empty());
}

// Enumerators come from outside as numbers; one out of range must not become an enum.
bool is_stream(std::uint8_t stream) {
  return stream == 1 || stream == 2;
}

}  // namespace

HVD_MESSAGE(WelcomeMessage, "Welcome", [](const WelcomeMessage& m) { return m.size >= 1; })
HVD_MESSAGE(ReadyMessage, "Ready")

std::string hostfile_beside(const std::string& socket_path) {
  return socket_path.substr(0, socket_path.rfind('/') + 1) + "hostfile";
}

HVD_MESSAGE(ByeMessage, "Bye", [](const ByeMessage& m) { return m.code >= 0 && m.code <= 255; })
HVD_MESSAGE(ResumeMessage, "Resume")
HVD_MESSAGE(StartMessage, "Start", is_start)
HVD_MESSAGE(GenerationMessage, "Generation", is_generation)
HVD_MESSAGE(JoinedMessage, "Joined")
HVD_MESSAGE(StopMessage, "Stop")

std::string agent_frame(AgentMessage type, std::string_view body) {
  return make_frame(kAgentFrames, static_cast<std::uint16_t>(type), body);
}

std::string number_body(std::int32_t a) {
  return encoded(a);
}

std::string number_body(std::int32_t a, std::int32_t b) {
  return encoded(a, b);
}

Result<std::int32_t> decode_number(std::string_view body) {
  ByteReader in(body);
  const std::int32_t number = in.i32();
  if (!in.ok()) {
    return malformed("number");
  }
  return number;
}

Result<std::pair<std::int32_t, std::int32_t>> decode_two_numbers(std::string_view body) {
  ByteReader in(body);
  const std::int32_t a = in.i32();
  const std::int32_t b = in.i32();
  if (!in.finished()) {
    return malformed("two numbers");
  }
  return std::pair(a, b);
}

std::string count_body(std::uint64_t count) {
  return encoded(count);
}

Result<std::uint64_t> decode_count(std::string_view body) {
  ByteReader in(body);
  const std::uint64_t count = in.u64();
  if (!in.finished()) {
    return malformed("count");
  }
  return count;
}

HVD_MESSAGE(StartFailedMessage, "StartFailed")

Result<OutputMessage> OutputMessage::decode(std::string_view body) {
  ByteReader in(body);
  OutputMessage m;
  m.rank = in.i32();
  const std::uint8_t stream = in.u8();
  if (!in.ok() || !is_stream(stream)) {
    return malformed("Output");
  }
  m.stream = static_cast<StreamId>(stream);
  m.bytes = as_text(in.take(in.left()));
  return m;
}

std::string FailingMessage::encode() const {
  return encoded(rank, generation) + news.encode();
}

Result<FailingMessage> FailingMessage::decode(std::string_view body) {
  ByteReader in(body);
  FailingMessage m;
  m.rank = in.i32();
  m.generation = in.u32();
  if (!in.ok()) {
    return malformed("Failing");
  }
  HVD_TRY_ASSIGN(m.news, FailureNews::decode(body.substr(sizeof m.rank + sizeof m.generation)));
  return m;
}

HVD_MESSAGE(ExitedMessage, "Exited")
HVD_MESSAGE(ExchangeMessage, "Exchange")
HVD_MESSAGE(ExchangedMessage, "Exchanged")

std::string output_frame(std::int32_t rank, StreamId stream, std::string_view bytes) {
  std::string body;
  body.reserve(sizeof rank + 1 + bytes.size());
  ByteWriter head;
  head.i32(rank).u8(static_cast<std::uint8_t>(stream));
  body += head.str();
  body += bytes;
  return agent_frame(AgentMessage::kOutput, body);
}

std::string output_end_frame(std::int32_t rank, StreamId stream) {
  ByteWriter body;
  body.i32(rank).u8(static_cast<std::uint8_t>(stream));
  return agent_frame(AgentMessage::kOutputEnd, body.str());
}

HVD_MESSAGE(RelayStartMessage, "RelayStart", [](const RelayStartMessage& m) { return !m.argv.empty(); })
HVD_MESSAGE(RelayOverMessage, "RelayOver")

Result<RelayMessage> RelayMessage::decode(std::string_view body) {
  ByteReader in(body);
  RelayMessage m;
  m.command = in.u32();
  if (!in.ok()) {
    return malformed("Relay");
  }
  m.bytes = as_text(in.take(in.left()));
  return m;
}

std::string relay_body(std::uint32_t command, std::string_view bytes) {
  return encoded(command).append(bytes);
}

std::string relay_number_body(std::uint32_t command, std::uint32_t number) {
  return encoded(command, number);
}

Result<std::uint32_t> decode_relay_number(const RelayMessage& message) {
  ByteReader in(message.bytes);
  const std::uint32_t number = in.u32();
  if (!in.finished()) {
    return malformed("Relay");
  }
  return number;
}

}  // namespace hvd::launch
