#include "launcher/agent/check_messages.h"

#include <cmath>

#include "launcher/agent/message_fields.h"
#include "runtime/base/bytes.h"

namespace hvd::launch {
namespace {

constexpr std::int32_t kMostPorts = 2 * 65536;  // those of IPv4 and of IPv6

void put_folder(ByteWriter& out, const FolderSurvey& folder) {
  out.text(folder.path).text(folder.error).u64(folder.free);
}

FolderSurvey take_folder(ByteReader& in) {
  FolderSurvey folder;
  folder.path = in.text();
  folder.error = in.text();
  folder.free = in.u64();
  return folder;
}

void put_interface(ByteWriter& out, const InterfaceSurvey& interface) {
  out.text(interface.name).i32(interface.mtu).i32(interface.speed_mbit);
  out.u32(static_cast<std::uint32_t>(interface.addresses.size()));
  for (const std::string& address : interface.addresses) {
    out.text(address);
  }
}

InterfaceSurvey take_interface(ByteReader& in) {
  InterfaceSurvey interface;
  interface.name = in.text();
  interface.mtu = in.i32();
  interface.speed_mbit = in.i32();
  interface.addresses.resize(in.count(4));
  for (std::string& address : interface.addresses) {
    address = in.text();
  }
  return interface;
}

// A truth value, where any other number is refused.
bool take_flag(ByteReader& in, bool& is_valid) {
  const std::uint8_t flag = in.u8();
  is_valid = is_valid && flag <= 1;
  return flag == 1;
}

std::int64_t nanoseconds(Duration duration) {
  return duration.count();
}

}  // namespace

std::string ClockMessage::encode() const {
  ByteWriter out;
  out.u32(number).i64(unix_ns);
  return std::move(out).str();
}

Result<ClockMessage> ClockMessage::decode(std::string_view body) {
  ByteReader in(body);
  ClockMessage m;
  m.number = in.u32();
  m.unix_ns = in.i64();
  // Far from any overflow when two of them are subtracted: the years 1970 to 2116.
  if (!in.finished() || m.unix_ns < 0 || m.unix_ns > INT64_MAX / 2) {
    return malformed("Clock");
  }
  return m;
}

std::string SurveyRequest::encode() const {
  ByteWriter out;
  out.text(start.encode()).u8(wants_mpirun ? 1 : 0).u32(patience_ms);
  return std::move(out).str();
}

Result<SurveyRequest> SurveyRequest::decode(std::string_view body) {
  ByteReader in(body);
  SurveyRequest m;
  HVD_TRY_ASSIGN(m.start, StartMessage::decode(in.text()));
  bool is_valid = true;
  m.wants_mpirun = take_flag(in, is_valid);
  m.patience_ms = in.u32();
  if (!in.finished() || !is_valid) {
    return malformed("AskSurvey");
  }
  return m;
}

std::string SystemSurvey::encode() const {
  ByteWriter out;
  out.text(system).text(kernel).text(machine).text(agent_path).i32(processors).f64(processor_limit);
  out.u64(memory).u64(memory_free).u64(memory_limit);
  out.u64(open_files).u64(open_files_most).u64(locked_memory).u64(processes);
  out.i32(first_port).i32(last_port).i32(used_ports).text(listen_error).u64(shared).u64(shared_free);
  out.text(own_name_address).u32(static_cast<std::uint32_t>(interfaces.size()));
  for (const InterfaceSurvey& interface : interfaces) {
    put_interface(out, interface);
  }
  return std::move(out).str();
}

Result<SystemSurvey> SystemSurvey::decode(std::string_view body) {
  ByteReader in(body);
  SystemSurvey m;
  m.system = in.text();
  m.kernel = in.text();
  m.machine = in.text();
  m.agent_path = in.text();
  m.processors = in.i32();
  m.processor_limit = in.f64();
  m.memory = in.u64();
  m.memory_free = in.u64();
  m.memory_limit = in.u64();
  m.open_files = in.u64();
  m.open_files_most = in.u64();
  m.locked_memory = in.u64();
  m.processes = in.u64();
  m.first_port = in.i32();
  m.last_port = in.i32();
  m.used_ports = in.i32();
  m.listen_error = in.text();
  m.shared = in.u64();
  m.shared_free = in.u64();
  m.own_name_address = in.text();
  m.interfaces.resize(in.count(16));
  for (InterfaceSurvey& interface : m.interfaces) {
    interface = take_interface(in);
  }
  const auto is_port = [](std::int32_t port) { return port >= 0 && port <= 65535; };
  if (!in.finished() || !std::isfinite(m.processor_limit) || m.processor_limit < 0 || m.processors < 0 ||
      !is_port(m.first_port) || !is_port(m.last_port) || m.used_ports < 0 || m.used_ports > kMostPorts) {
    return malformed("System");
  }
  return m;
}

std::string SoftwareSurvey::encode() const {
  ByteWriter out;
  out.text(error).text(driver).u32(static_cast<std::uint32_t>(gpus.size()));
  for (const GpuSurvey& gpu : gpus) {
    out.text(gpu.name).u64(gpu.memory);
  }
  for (const FolderSurvey* folder : {&cache, &temporary, &directory}) {
    put_folder(out, *folder);
  }
  out.text(program).text(program_error).text(python).text(python_error).text(torch).text(torch_cuda).text(horovod);
  out.text(mpirun).text(mpirun_error);
  return std::move(out).str();
}

Result<SoftwareSurvey> SoftwareSurvey::decode(std::string_view body) {
  ByteReader in(body);
  SoftwareSurvey m;
  m.error = in.text();
  m.driver = in.text();
  m.gpus.resize(in.count(12));
  for (GpuSurvey& gpu : m.gpus) {
    gpu.name = in.text();
    gpu.memory = in.u64();
  }
  for (FolderSurvey* folder : {&m.cache, &m.temporary, &m.directory}) {
    *folder = take_folder(in);
  }
  for (std::string* text : {&m.program, &m.program_error, &m.python, &m.python_error, &m.torch, &m.torch_cuda,
                            &m.horovod, &m.mpirun, &m.mpirun_error}) {
    *text = in.text();
  }
  if (!in.finished()) {
    return malformed("Software");
  }
  return m;
}

std::string ProbeRequest::encode() const {
  ByteWriter out;
  out.u32(number).u8(dials ? 1 : 0).i32(from).i32(to).text(address).u32(patience_ms);
  return std::move(out).str();
}

Result<ProbeRequest> ProbeRequest::decode(std::string_view body) {
  ByteReader in(body);
  ProbeRequest m;
  bool is_valid = true;
  m.number = in.u32();
  m.dials = take_flag(in, is_valid);
  m.from = in.i32();
  m.to = in.i32();
  m.address = in.text();
  m.patience_ms = in.u32();
  if (!in.finished() || !is_valid) {
    return malformed("AskProbe");
  }
  return m;
}

std::string ListeningMessage::encode() const {
  ByteWriter out;
  out.u32(number).i32(port).text(error);
  return std::move(out).str();
}

Result<ListeningMessage> ListeningMessage::decode(std::string_view body) {
  ByteReader in(body);
  ListeningMessage m;
  m.number = in.u32();
  m.port = in.i32();
  m.error = in.text();
  if (!in.finished() || m.port < 0 || m.port > 65535 || (m.port == 0 && m.error.empty())) {
    return malformed("Listening");
  }
  return m;
}

std::string ProbeResult::encode() const {
  ByteWriter out;
  out.u32(number).u8(dialed ? 1 : 0).u8(static_cast<std::uint8_t>(stage)).text(error);
  out.i64(nanoseconds(round_trip)).u64(bytes).i64(nanoseconds(stream_time));
  return std::move(out).str();
}

Result<ProbeResult> ProbeResult::decode(std::string_view body) {
  ByteReader in(body);
  ProbeResult m;
  bool is_valid = true;
  m.number = in.u32();
  m.dialed = take_flag(in, is_valid);
  const std::uint8_t stage = in.u8();
  m.error = in.text();
  m.round_trip = Duration(in.i64());
  m.bytes = in.u64();
  m.stream_time = Duration(in.i64());
  if (!in.finished() || !is_valid || stage > static_cast<std::uint8_t>(ProbeStage::kDone) ||
      m.round_trip < Duration::zero() || m.stream_time < Duration::zero()) {
    return malformed("Probed");
  }
  m.stage = static_cast<ProbeStage>(stage);
  return m;
}

}  // namespace hvd::launch
