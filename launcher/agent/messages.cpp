#include "launcher/agent/messages.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"

namespace hvd::launch {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void put_pairs(ByteWriter& out, const Pairs& pairs) {
  out.u32(static_cast<std::uint32_t>(pairs.size()));
  for (const auto& [name, value] : pairs) {
    out.text(name).text(value);
  }
}

Pairs take_pairs(ByteReader& in) {
  Pairs pairs(in.count(8));
  for (auto& [name, value] : pairs) {
    name = in.text();
    value = in.text();
  }
  return pairs;
}

void put_texts(ByteWriter& out, const std::vector<std::string>& texts) {
  out.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    out.text(text);
  }
}

std::vector<std::string> take_texts(ByteReader& in) {
  std::vector<std::string> texts(in.count(4));
  for (std::string& text : texts) {
    text = in.text();
  }
  return texts;
}

void put_numbers(ByteWriter& out, const std::vector<std::int32_t>& numbers) {
  out.u32(static_cast<std::uint32_t>(numbers.size()));
  for (const std::int32_t number : numbers) {
    out.i32(number);
  }
}

std::vector<std::int32_t> take_numbers(ByteReader& in) {
  std::vector<std::int32_t> numbers(in.count(4));
  for (std::int32_t& number : numbers) {
    number = in.i32();
  }
  return numbers;
}

Error malformed(const char* what) {
  return Error(Code::kProtocol, std::string("malformed ") + what + " message in the launcher-agent conversation");
}

bool is_cpu(std::int32_t number) {
  return number >= 0 && number < (1 << 16);
}

// Enumerators come from outside as numbers; one out of range must not become an enum.
bool is_stream(std::uint8_t stream) {
  return stream == 1 || stream == 2;
}

}  // namespace

std::string WelcomeMessage::encode() const {
  ByteWriter out;
  out.text(job_id).i32(size).raw(secret.data(), secret.size()).text(token).u32(heartbeat_ms);
  out.u32(reconnect_ms).u64(output_credit);
  return std::move(out).str();
}

Result<WelcomeMessage> WelcomeMessage::decode(std::string_view body) {
  ByteReader in(body);
  WelcomeMessage m;
  m.job_id = in.text();
  m.size = in.i32();
  const Bytes secret = in.take(kSecretBytes);
  if (secret.size() == kSecretBytes) {
    std::memcpy(m.secret.data(), secret.data(), kSecretBytes);
  }
  m.token = in.text();
  m.heartbeat_ms = in.u32();
  m.reconnect_ms = in.u32();
  m.output_credit = in.u64();
  if (!in.finished() || m.size < 1) {
    return malformed("Welcome");
  }
  return m;
}

std::string ReadyMessage::encode() const {
  ByteWriter out;
  out.text(version).text(host_name).i32(pid).i32(reserved_port).text(socket_path).text(resume_path);
  put_texts(out, networks);
  put_texts(out, gpus);
  put_numbers(out, near);
  out.i32(seat.rank).i32(seat.size).i32(seat.local_rank).i32(seat.local_size);
  out.u32(static_cast<std::uint32_t>(cores.size()));
  for (const CpuCore& core : cores) {
    out.i32(core.numa_node);
    put_numbers(out, core.cpus);
  }
  return std::move(out).str();
}

Result<ReadyMessage> ReadyMessage::decode(std::string_view body) {
  ByteReader in(body);
  ReadyMessage m;
  m.version = in.text();
  m.host_name = in.text();
  m.pid = in.i32();
  m.reserved_port = in.i32();
  m.socket_path = in.text();
  m.resume_path = in.text();
  m.networks = take_texts(in);
  m.gpus = take_texts(in);
  m.near = take_numbers(in);
  m.seat.rank = in.i32();
  m.seat.size = in.i32();
  m.seat.local_rank = in.i32();
  m.seat.local_size = in.i32();
  m.cores.resize(in.count(8));
  for (CpuCore& core : m.cores) {
    core.numa_node = in.i32();
    core.cpus = take_numbers(in);
  }
  if (!in.finished()) {
    return malformed("Ready");
  }
  return m;
}

std::string ResumeMessage::encode() const {
  ByteWriter out;
  out.text(resume_path).text(token).u64(received);
  return std::move(out).str();
}

Result<ResumeMessage> ResumeMessage::decode(std::string_view body) {
  ByteReader in(body);
  ResumeMessage m;
  m.resume_path = in.text();
  m.token = in.text();
  m.received = in.u64();
  if (!in.finished()) {
    return malformed("Resume");
  }
  return m;
}

std::string StartMessage::encode() const {
  ByteWriter out;
  out.text(cwd);
  put_texts(out, argv);
  put_texts(out, unset);
  put_pairs(out, env);
  put_pairs(out, last);
  out.u32(static_cast<std::uint32_t>(ranks.size()));
  for (const Rank& rank : ranks) {
    out.i32(rank.rank);
    put_pairs(out, rank.env);
    put_numbers(out, rank.cpus);
    put_texts(out, rank.argv);
  }
  return std::move(out).str();
}

Result<StartMessage> StartMessage::decode(std::string_view body) {
  ByteReader in(body);
  StartMessage m;
  m.cwd = in.text();
  m.argv = take_texts(in);
  m.unset = take_texts(in);
  m.env = take_pairs(in);
  m.last = take_pairs(in);
  m.ranks.resize(in.count(16));
  bool has_numbers = true;
  for (Rank& rank : m.ranks) {
    rank.rank = in.i32();
    rank.env = take_pairs(in);
    rank.cpus = take_numbers(in);
    rank.argv = take_texts(in);
    has_numbers = has_numbers && std::all_of(rank.cpus.begin(), rank.cpus.end(), is_cpu);
  }
  if (!in.finished() || !has_numbers || m.argv.empty() || m.ranks.empty()) {
    return malformed("Start");
  }
  return m;
}

std::string StopMessage::encode() const {
  ByteWriter out;
  out.i32(signal).u32(grace_ms);
  return std::move(out).str();
}

Result<StopMessage> StopMessage::decode(std::string_view body) {
  ByteReader in(body);
  StopMessage m;
  m.signal = in.i32();
  m.grace_ms = in.u32();
  if (!in.finished()) {
    return malformed("Stop");
  }
  return m;
}

std::string StartFailedMessage::encode() const {
  ByteWriter out;
  out.i32(rank).i32(static_cast<std::int32_t>(why.code())).text(why.message());
  return std::move(out).str();
}

Result<StartFailedMessage> StartFailedMessage::decode(std::string_view body) {
  ByteReader in(body);
  StartFailedMessage m;
  m.rank = in.i32();
  const std::int32_t code = in.i32();
  m.why = Error(static_cast<Code>(code), in.text());
  if (!in.finished() || code < 1 || code > static_cast<std::int32_t>(Code::kMismatch)) {
    return malformed("StartFailed");
  }
  return m;
}

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

std::string ExitedMessage::encode() const {
  ByteWriter out;
  out.i32(rank).u8(static_cast<std::uint8_t>(status.kind)).i32(status.value);
  out.u8(status.has_core ? 1 : 0).u8(status.out_of_memory ? 1 : 0).text(detail.memory).text(detail.core);
  return std::move(out).str();
}

Result<ExitedMessage> ExitedMessage::decode(std::string_view body) {
  ByteReader in(body);
  ExitedMessage m;
  m.rank = in.i32();
  const std::uint8_t kind = in.u8();
  m.status.value = in.i32();
  const std::uint8_t has_core = in.u8();
  const std::uint8_t out_of_memory = in.u8();
  m.detail.memory = in.text();
  m.detail.core = in.text();
  if (!in.finished() || kind > 1 || has_core > 1 || out_of_memory > 1) {
    return malformed("Exited");
  }
  m.status.has_core = has_core == 1;
  m.status.out_of_memory = out_of_memory == 1;
  m.status.kind = static_cast<ExitStatus::Kind>(kind);
  return m;
}

std::string ExchangeMessage::encode() const {
  ByteWriter out;
  out.i32(rank).text(key).text(value);
  return std::move(out).str();
}

Result<ExchangeMessage> ExchangeMessage::decode(std::string_view body) {
  ByteReader in(body);
  ExchangeMessage m;
  m.rank = in.i32();
  m.key = in.text();
  m.value = in.text();
  if (!in.finished()) {
    return malformed("Exchange");
  }
  return m;
}

std::string ExchangedMessage::encode() const {
  ByteWriter out;
  out.text(key);
  put_texts(out, values);
  return std::move(out).str();
}

Result<ExchangedMessage> ExchangedMessage::decode(std::string_view body) {
  ByteReader in(body);
  ExchangedMessage m;
  m.key = in.text();
  m.values = take_texts(in);
  if (!in.finished()) {
    return malformed("Exchanged");
  }
  return m;
}

std::string RelayStartMessage::encode() const {
  ByteWriter out;
  out.u32(command);
  put_texts(out, argv);
  return std::move(out).str();
}

Result<RelayStartMessage> RelayStartMessage::decode(std::string_view body) {
  ByteReader in(body);
  RelayStartMessage m;
  m.command = in.u32();
  m.argv = take_texts(in);
  if (!in.finished() || m.argv.empty()) {
    return malformed("RelayStart");
  }
  return m;
}

std::string RelayOverMessage::encode() const {
  ByteWriter out;
  out.u32(command).u8(status ? 1 : 0).text(how);
  if (status) {
    out.u8(static_cast<std::uint8_t>(status->kind)).i32(status->value);
  }
  return std::move(out).str();
}

Result<RelayOverMessage> RelayOverMessage::decode(std::string_view body) {
  ByteReader in(body);
  RelayOverMessage m;
  m.command = in.u32();
  const std::uint8_t has_status = in.u8();
  m.how = in.text();
  std::uint8_t kind = 0;
  if (has_status == 1) {
    kind = in.u8();
    m.status.emplace();
    m.status->value = in.i32();
  }
  if (!in.finished() || has_status > 1 || kind > 1) {
    return malformed("RelayOver");
  }
  if (m.status) {
    m.status->kind = static_cast<ExitStatus::Kind>(kind);
  }
  return m;
}

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
  ByteWriter head;
  head.u32(command);
  std::string body = std::move(head).str();
  body += bytes;
  return body;
}

std::string relay_number_body(std::uint32_t command, std::uint32_t number) {
  ByteWriter out;
  out.u32(command).u32(number);
  return std::move(out).str();
}

Result<std::uint32_t> decode_relay_number(const RelayMessage& message) {
  ByteReader in(message.bytes);
  const std::uint32_t number = in.u32();
  if (!in.finished()) {
    return malformed("Relay");
  }
  return number;
}

std::string agent_frame(AgentMessage type, std::string_view body) {
  return make_frame(kAgentFrames, static_cast<std::uint16_t>(type), body);
}

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

std::string number_body(std::int32_t a) {
  ByteWriter out;
  out.i32(a);
  return std::move(out).str();
}

std::string number_body(std::int32_t a, std::int32_t b) {
  ByteWriter out;
  out.i32(a).i32(b);
  return std::move(out).str();
}

Result<std::int32_t> decode_number(std::string_view body) {
  ByteReader in(body);
  const std::int32_t number = in.i32();
  if (!in.ok()) {
    return malformed("number");
  }
  return number;
}

std::string count_body(std::uint64_t count) {
  ByteWriter out;
  out.u64(count);
  return std::move(out).str();
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
