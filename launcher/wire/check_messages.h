// What launcher and agent say to each other when a node is checked and no job is run: bodies of the messages kAskClock
// to kProbed of messages.h. Every decoder is total. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/wire/messages.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// A limit that is not there.
inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

// One reading of the node's clock, as the answer to the question with this number.
struct ClockMessage {
  std::uint32_t number = 0;
  std::int64_t unix_ns = 0;  // CLOCK_REALTIME

  static void fields(auto& m, auto& walk) { walk(m.number, m.unix_ns); }
  [[nodiscard]] std::string encode() const;
  static Result<ClockMessage> decode(std::string_view body);
};

struct SurveyRequest {
  // It has a job's environment, directory and command line. The directory is empty if --sync brings it.
  StartMessage start;
  std::vector<std::string> programs;  // the first that is there could run the job
  bool wants_mpirun = false;
  std::uint32_t patience_ms = 0;  // for what may take long

  static void fields(auto& m, auto& walk) { walk(embedded(m.start), m.programs, m.wants_mpirun, m.patience_ms); }
  [[nodiscard]] std::string encode() const;
  static Result<SurveyRequest> decode(std::string_view body);
};

struct InterfaceSurvey {
  std::string name;
  std::vector<std::string> addresses;  // "10.0.0.1/24"
  std::int32_t mtu = 0;
  std::int32_t speed_mbit = -1;  // -1: the driver does not tell

  static void fields(auto& m, auto& walk) { walk(m.name, m.mtu, m.speed_mbit, m.addresses); }
};

// What the kernel tells at once.
struct SystemSurvey {
  std::string system;                 // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;                 // "Linux 6.1.0-13-amd64"
  std::string machine;                // "x86_64"
  std::string agent_path;             // the agent's own executable
  std::int32_t processors = 0;        // that ranks may run on
  double processor_limit = 0;         // of the cgroup, in processors; 0: none
  std::uint64_t memory = 0;           // bytes
  std::uint64_t memory_free = 0;      // bytes that ranks could have ("MemAvailable")
  std::uint64_t memory_limit = 0;     // bytes, of the cgroup; kUnlimited: none
  std::uint64_t open_files = 0;       // RLIMIT_NOFILE, soft
  std::uint64_t open_files_most = 0;  // the same, hard
  std::uint64_t locked_memory = 0;    // RLIMIT_MEMLOCK, bytes, soft
  std::uint64_t processes = 0;        // RLIMIT_NPROC and the cgroup's pids.max, the smaller
  std::int32_t first_port = 0;        // of those that are given out
  std::int32_t last_port = 0;
  std::int32_t used_ports = 0;  // of these
  std::string listen_error;     // why no port can be opened; empty: one can
  std::uint64_t shared = 0;     // bytes of /dev/shm; 0: there is none
  std::uint64_t shared_free = 0;
  std::string own_name_address;  // what /etc/hosts has for the node's own name; empty: nothing
  std::vector<InterfaceSurvey> interfaces;

  static void fields(auto& m, auto& walk) {
    walk(m.system, m.kernel, m.machine, m.agent_path, m.processors, m.processor_limit);
    walk(m.memory, m.memory_free, m.memory_limit);
    walk(m.open_files, m.open_files_most, m.locked_memory, m.processes);
    walk(m.first_port, m.last_port, m.used_ports, m.listen_error, m.shared, m.shared_free);
    walk(m.own_name_address, m.interfaces);
  }
  [[nodiscard]] std::string encode() const;
  static Result<SystemSurvey> decode(std::string_view body);
};

struct GpuSurvey {
  std::string name;
  std::uint64_t memory = 0;  // bytes; 0: unknown

  static void fields(auto& m, auto& walk) { walk(m.name, m.memory); }
};

struct FolderSurvey {
  std::string path;
  std::string error;  // empty: it can be used
  std::uint64_t free = 0;

  static void fields(auto& m, auto& walk) { walk(m.path, m.error, m.free); }
};

// What programs and file systems tell, which may take long.
struct SoftwareSurvey {
  std::string error;  // not all is there, for this reason
  std::string driver;
  std::vector<GpuSurvey> gpus;
  FolderSurvey cache;      // where the agent lies
  FolderSurvey temporary;  // TMPDIR
  FolderSurvey directory;  // the job's working directory
  std::string program;     // the path that was found
  std::string program_error;
  std::string script;  // that the command line names for a Python, as it is written there; empty: none
  std::string script_error;
  // of a Python program
  std::string python;  // "3.11.7"; empty: it is none, or does not run
  std::string python_error;
  std::string torch;                                          // "2.13.0+cpu"; empty: it has none
  std::string torch_cuda;                                     // that it was built for
  std::string horovod;                                        // ours; empty: none
  std::vector<std::pair<std::string, std::string>> packages;  // installed ones with their versions, sorted
  std::string mpirun;                                         // "Open MPI 4.1.4"
  std::string mpirun_error;

  static void fields(auto& m, auto& walk) {
    walk(m.error, m.driver, m.gpus, m.cache, m.temporary, m.directory, m.program, m.program_error);
    walk(m.script, m.script_error);
    walk(m.python, m.python_error, m.torch, m.torch_cuda, m.horovod, m.packages, m.mpirun, m.mpirun_error);
  }
  [[nodiscard]] std::string encode() const;
  static Result<SoftwareSurvey> decode(std::string_view body);
};

// One connection between two nodes: the one listens, the other dials.
struct ProbeRequest {
  std::uint32_t number = 0;  // of the probe; both ends have the same
  bool dials = false;
  std::int32_t from = 0;  // the node that dials
  std::int32_t to = 0;    // the node that listens
  std::string address;    // "10.0.0.1:4711" to dial, "10.0.0.1" to listen at
  std::uint32_t patience_ms = 0;

  static void fields(auto& m, auto& walk) { walk(m.number, m.dials, m.from, m.to, m.address, m.patience_ms); }
  [[nodiscard]] std::string encode() const;
  static Result<ProbeRequest> decode(std::string_view body);
};

struct ListeningMessage {
  std::uint32_t number = 0;
  std::int32_t port = 0;
  std::string error;  // empty: it listens

  static void fields(auto& m, auto& walk) { walk(m.number, m.port, m.error); }
  [[nodiscard]] std::string encode() const;
  static Result<ListeningMessage> decode(std::string_view body);
};

// How far a probe came.
enum class ProbeStage : std::uint8_t {
  kConnect,  // no connection was made
  kProve,    // its ends did not believe each other
  kPing,     // small messages did not go to and fro
  kStream,   // much data did not go through
  kDone
};

struct ProbeResult {
  std::uint32_t number = 0;
  bool dialed = false;
  ProbeStage stage = ProbeStage::kConnect;
  std::string error;        // empty when done
  Duration round_trip{};    // the median of small messages; the end that dials knows it
  std::uint64_t bytes = 0;  // that came; the end that listens knows it
  Duration stream_time{};   // for these

  static void fields(auto& m, auto& walk) {
    walk(m.number, m.dialed, bounded(m.stage, ProbeStage::kConnect, ProbeStage::kDone), m.error, m.round_trip);
    walk(m.bytes, m.stream_time);
  }
  [[nodiscard]] std::string encode() const;
  static Result<ProbeResult> decode(std::string_view body);
};

}  // namespace hvd::launch
