#include "launcher/agent/messages.h"

#include <algorithm>
#include <cstring>

#include "launcher/agent/message_fields.h"

namespace hvd::launch {
namespace {

bool is_cpu(std::int32_t number) {
  return number >= 0 && number < (1 << 16);
}

// None of the agent's own, and nothing elsewhere.
bool is_own_file(const std::string& name) {
  return name.starts_with("text-") && name.find_first_not_of("0123456789", 5) == std::string::npos;
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
  out.u32(static_cast<std::uint32_t>(networks.size()));
  for (const NamedNetwork& network : networks) {
    out.text(network.interface).text(network.network);
  }
  out.text(gpu_variable);
  put_texts(out, gpus);
  put_numbers(out, near);
  out.i32(seat.rank).i32(seat.size).i32(seat.local_rank).i32(seat.local_size);
  out.text(machine);
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
  m.networks.resize(in.count(8));
  for (NamedNetwork& network : m.networks) {
    network.interface = in.text();
    network.network = in.text();
  }
  m.gpu_variable = in.text();
  m.gpus = take_texts(in);
  m.near = take_numbers(in);
  m.seat.rank = in.i32();
  m.seat.size = in.i32();
  m.seat.local_rank = in.i32();
  m.seat.local_size = in.i32();
  m.machine = in.text();
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

std::string hostfile_beside(const std::string& socket_path) {
  return socket_path.substr(0, socket_path.rfind('/') + 1) + "hostfile";
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
    out.u8(rank.reads_input ? 1 : 0);
  }
  out.u8(may_restart ? 1 : 0).text(hostfile).u32(input_window);
  put_pairs(out, files);
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
  bool has_readers = false;
  for (Rank& rank : m.ranks) {
    rank.rank = in.i32();
    rank.env = take_pairs(in);
    rank.cpus = take_numbers(in);
    rank.argv = take_texts(in);
    const std::uint8_t reads_input = in.u8();
    rank.reads_input = reads_input == 1;
    has_readers = has_readers || rank.reads_input;
    has_numbers = has_numbers && reads_input <= 1 && std::all_of(rank.cpus.begin(), rank.cpus.end(), is_cpu);
  }
  const std::uint8_t may_restart = in.u8();
  m.hostfile = in.text();
  m.input_window = in.u32();
  m.files = take_pairs(in);
  const bool has_names =
      std::all_of(m.files.begin(), m.files.end(), [](const auto& file) { return is_own_file(file.first); });
  const bool has_window = m.input_window > 0;
  if (!in.finished() || !has_numbers || !has_names || may_restart > 1 || m.argv.empty() || m.ranks.empty() ||
      has_window != has_readers || m.input_window > kInputWindow) {
    return malformed("Start");
  }
  m.may_restart = may_restart == 1;
  return m;
}

std::string RestartMessage::encode() const {
  ByteWriter out;
  out.u32(epoch).text(cause).text(start ? start->encode() : "");
  return std::move(out).str();
}

Result<RestartMessage> RestartMessage::decode(std::string_view body) {
  ByteReader in(body);
  RestartMessage m;
  m.epoch = in.u32();
  m.cause = in.text();
  const std::string start = in.text();
  if (!in.finished()) {
    return malformed("Restart");
  }
  if (!start.empty()) {
    HVD_TRY_ASSIGN(m.start, StartMessage::decode(start));
  }
  return m;
}

std::string StopMessage::encode() const {
  ByteWriter out;
  out.i32(signal).u32(grace_ms);
  put_numbers(out, spared);
  return std::move(out).str();
}

Result<StopMessage> StopMessage::decode(std::string_view body) {
  ByteReader in(body);
  StopMessage m;
  m.signal = in.i32();
  m.grace_ms = in.u32();
  m.spared = take_numbers(in);
  if (!in.finished()) {
    return malformed("Stop");
  }
  return m;
}

std::string agent_frame(AgentMessage type, std::string_view body) {
  return make_frame(kAgentFrames, static_cast<std::uint16_t>(type), body);
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
