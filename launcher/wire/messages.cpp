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

}  // namespace

std::string WelcomeMessage::encode() const {
  return encoded(*this);
}

Result<WelcomeMessage> WelcomeMessage::decode(std::string_view body) {
  return decoded<WelcomeMessage>(body, "Welcome", [](const WelcomeMessage& m) { return m.size >= 1; });
}

std::string ReadyMessage::encode() const {
  return encoded(*this);
}

Result<ReadyMessage> ReadyMessage::decode(std::string_view body) {
  return decoded<ReadyMessage>(body, "Ready");
}

std::string hostfile_beside(const std::string& socket_path) {
  return socket_path.substr(0, socket_path.rfind('/') + 1) + "hostfile";
}

std::string ByeMessage::encode() const {
  return encoded(*this);
}

Result<ByeMessage> ByeMessage::decode(std::string_view body) {
  return decoded<ByeMessage>(body, "Bye", [](const ByeMessage& m) { return m.code >= 0 && m.code <= 255; });
}

std::string ResumeMessage::encode() const {
  return encoded(*this);
}

Result<ResumeMessage> ResumeMessage::decode(std::string_view body) {
  return decoded<ResumeMessage>(body, "Resume");
}

std::string StartMessage::encode() const {
  return encoded(*this);
}

Result<StartMessage> StartMessage::decode(std::string_view body) {
  return decoded<StartMessage>(body, "Start", is_start);
}

std::string GenerationMessage::encode() const {
  return encoded(*this);
}

Result<GenerationMessage> GenerationMessage::decode(std::string_view body) {
  return decoded<GenerationMessage>(body, "Generation", is_generation);
}

std::string JoinedMessage::encode() const {
  return encoded(*this);
}

Result<JoinedMessage> JoinedMessage::decode(std::string_view body) {
  return decoded<JoinedMessage>(body, "Joined");
}

std::string StopMessage::encode() const {
  return encoded(*this);
}

Result<StopMessage> StopMessage::decode(std::string_view body) {
  return decoded<StopMessage>(body, "Stop");
}

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

}  // namespace hvd::launch
