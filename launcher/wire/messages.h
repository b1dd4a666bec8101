// These are the messages of launcher and agent: frames (base/frame.h) of the types of AgentMessage, with bodies encoded
// by base/bytes.h. Each message that has more than one field is a struct, which lists them once for both directions
// (fields.h); every decoder is total. AskClock, AskSurvey and AskProbe, with their answers, check a node on which no
// job is run (check_messages.h).
//
// The agent's first word is Ready, the launcher's Welcome. Where a session may be resumed (Welcome says so) it outlives
// its connection once the ranks were started: the launcher opens a new one, to a new agent of the same program, and
// answers its Ready by Resume, and says no more before it has the answer. The new agent hands the connection to the one
// that has the ranks. That answers Resumed; both ends then send again what the other has not got. Bye, and else the
// launcher's end of input, means "the job is over": the agent stops its ranks and ends.
//
// Relay... lets the launcher run a command on the agent's node that carries bytes to another node (relay_hub.h): its
// standard streams travel in these frames. Each such command has a number, which the launcher never uses again. They
// belong to one connection, and end with it.
//
// Input... is hvdrun's standard input, for the ranks that Start gives it. The agent grants the first credit when these
// run, and more as the slowest of them reads; nothing is sent without.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process/exit_status.h"
#include "launcher/wire/fields.h"
#include "launcher/wire/host_run.h"
#include "runtime/base/cpu_list.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/failure_news.h"
#include "runtime/rendezvous/generation_place.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// Of the version, since both ends are of one hvdrun: it grows with each change of a message or its meaning.
inline constexpr FrameSpec kAgentFrames{0x41445648U /* "HVDA" */, 13, 64U << 20U, "launcher-agent"};

enum class AgentMessage : std::uint16_t {
  // The launcher sends these to the agent.
  kWelcome = 1,
  kStart = 2,
  kStop = 3,
  kForward = 4,    // i32 signal: passed on to every rank's process group
  kCredit = 5,     // u64 bytes of Output that may be sent in addition
  kExchanged = 6,  // ExchangedMessage
  kNotice = 7,     // text cause: the job is over, told to every rank
  kHeartbeat = 8,  // empty; answered by the same
  kAck = 9,        // u64: the numbered frames of this session that have come; from either end
  kResume = 10,    // ResumeMessage
  kBye = 11,       // ByeMessage: nothing more comes, over no connection

  kRelayStart = 12,     // RelayStartMessage
  kRelayInput = 13,     // u32 command, then the bytes: for its standard input
  kRelayImage = 14,     // u32 command: the agent's own executable is for its standard input
  kRelayInputEnd = 15,  // u32 command: its input ends, after what was written to it
  kRelayEnd = 16,       // u32 command, u32 ms: it is not needed any more, and has so long between SIGTERM and SIGKILL
  kRelayCredit = 17,    // u32 command, u32 bytes of its output and errors that may be sent in addition
  kGeneration = 18,     // GenerationMessage
  kEndRank = 19,        // i32 rank, i32 signal: it has failed and does not end by itself

  // The agent sends these to the launcher.
  kReady = 20,
  kStarted = 21,      // i32 rank, i32 pid
  kStartFailed = 22,  // StartFailedMessage
  kOutput = 23,       // i32 rank, u8 stream (1 or 2), then the bytes
  kOutputEnd = 24,    // i32 rank, u8 stream
  kExited = 25,       // ExitedMessage
  kExchange = 26,     // ExchangeMessage
  kJoined = 27,       // JoinedMessage
  kProblem = 28,      // text: something the user should know; the job goes on
  kDone = 29,         // empty: every rank and all that they left behind is gone
  kResumed = 30,      // u64: the numbered frames of this session that have come
  kNoResume = 31,     // text: why the session is over
  kEnding =
      32,  // text: why the agent ends its node's ranks; under an engine only soon, unless it is told before what to do
  kRelayOutput = 33,  // u32 command, then the bytes: of its standard output
  kRelayErrors = 34,  // u32 command, then the bytes: of its standard error
  kRelayOver = 35,    // RelayOverMessage: nothing more comes of it
  kFailing = 36,      // FailingMessage
  kLeaving = 37,      // text: why the agent asks that its ranks leave the others when it suits these

  // Both ways, by what they are for:
  kInput = 40,        // bytes: for the standard input of the node's ranks that are given it
  kInputEnd = 41,     // empty: its end
  kInputCredit = 42,  // u64 bytes of Input that may be sent in addition
  kInputOver = 43,    // empty: no rank of the node takes any more

  kSuspend = 45,    // empty: the ranks are stopped (SIGSTOP), and the launcher is silent as long as it likes
  kSuspended = 46,  // empty: the answer
  kContinue = 47,   // empty: the ranks go on (SIGCONT)

  kWatch = 48,   // WatchMessage (sample_messages.h): samples are to come from now on, or none any more
  kSample = 49,  // SampleMessage (sample_messages.h)

  kAskClock = 50,   // i32: the question's number; answered at once
  kAskSurvey = 51,  // SurveyRequest; answered by System, then Software
  kAskProbe = 52,   // ProbeRequest; answered by Probed, and before it by Listening, if it is to listen
  kAskStacks = 53,  // StacksRequest (stack_messages.h); answered by a Stacks for each rank that runs
  kClock = 60,      // ClockMessage
  kSystem = 61,     // SystemSurvey
  kSoftware = 62,   // SoftwareSurvey
  kListening = 63,  // ListeningMessage
  kProbed = 64,     // ProbeResult
  kStacks = 65,     // RankStacks

  // A folder is brought to the node before its ranks start (tree_messages.h).
  kOfferTree = 54,   // TreeOffer; answered by AskTree, or by TreeHere at once
  kTreeList = 55,    // TreeList; after the last one comes WantFiles, or TreeHere at once
  kFileBytes = 56,   // FileBytes, until all that was wanted has been sent
  kFetchFiles = 57,  // FetchFiles: instead of FileBytes
  kAskTree = 66,     // empty
  kWantFiles = 67,   // WantedFiles
  kFileCredit = 68,  // FileCredit
  kTreeHere = 69,    // TreeHere

  // Files of that folder come home when the node's ranks have ended, before Done.
  kResultList = 70,    // TreeList, a whole one; the next follows the bytes of all files of this one
  kResultBytes = 71,   // FileBytes: of all files of the list
  kResultCredit = 72,  // ResultCredit
};

// About a folder that is brought to the node.
constexpr bool is_about_tree(AgentMessage type) {
  return (type >= AgentMessage::kOfferTree && type <= AgentMessage::kFetchFiles) ||
         (type >= AgentMessage::kAskTree && type <= AgentMessage::kTreeHere);
}

// About a command that carries bytes to another node.
constexpr bool is_relayed(AgentMessage type) {
  return (type >= AgentMessage::kRelayStart && type <= AgentMessage::kRelayCredit) ||
         (type >= AgentMessage::kRelayOutput && type <= AgentMessage::kRelayOver);
}

// The frames that a session counts, and sends again over a new connection; the others belong to one connection.
constexpr bool is_numbered(AgentMessage type) {
  return type != AgentMessage::kHeartbeat && type != AgentMessage::kAck && type != AgentMessage::kResume &&
         type != AgentMessage::kBye && type != AgentMessage::kReady && type != AgentMessage::kResumed &&
         type != AgentMessage::kNoResume && !is_relayed(type) && !is_about_tree(type);
}

// Bytes of output and errors of one relayed command that may be under way to the launcher.
inline constexpr std::uint32_t kRelayWindow = 512U << 10U;

// Most bytes of Input that may be under way to a node.
inline constexpr std::uint32_t kInputWindow = 256U << 10U;

// A connection over which nothing has come for so many heartbeat intervals is lost, to either end.
inline constexpr int kMissedHeartbeats = 3;

// The launcher gives up so much before its agents do, so that none of them refuses it when it comes back.
inline constexpr std::chrono::seconds kReconnectSlack{5};

enum class StreamId : std::uint8_t { kStdout = 1, kStderr = 2 };

// The first words of the launcher: who the agent works for.
struct WelcomeMessage {
  std::string job_id;
  std::int32_t size = 0;
  JobSecret secret{};
  std::string token;                // what a rank must show at the agent's socket
  std::uint32_t heartbeat_ms = 0;   // 0: none, as to an agent on the launcher's own machine
  std::uint32_t reconnect_ms = 0;   // 0: the session ends with its connection; else how long it waits for a new one
  std::uint64_t output_credit = 0;  // bytes of Output that may be under way

  static void fields(auto& m, auto& walk) {
    walk(m.job_id, m.size, m.secret, m.token, m.heartbeat_ms, m.reconnect_ms, m.output_credit);
  }
  [[nodiscard]] std::string encode() const;
  static Result<WelcomeMessage> decode(std::string_view body);
};

// Where an engine that starts agents, one for each rank, has put this one; -1: no engine did.
struct Seat {
  std::int32_t rank = -1;
  std::int32_t size = -1;
  std::int32_t local_rank = -1;
  std::int32_t local_size = -1;

  static void fields(auto& m, auto& walk) { walk(m.rank, m.size, m.local_rank, m.local_size); }
};

struct NamedNetwork {
  std::string interface;  // "eth0"
  std::string network;    // "10.0.0.1/24"

  static void fields(auto& m, auto& walk) { walk(m.interface, m.network); }
};

struct ReadyMessage {
  std::string version;
  std::string host_name;  // as the node calls itself
  std::int32_t pid = 0;
  std::vector<CpuCore> cores;          // own_cores()
  std::int32_t reserved_port = 0;      // a TCP port, kept for the ranks' servers
  std::string socket_path;             // where ranks reach the agent
  std::string resume_path;             // where another agent brings a new connection for this one's session
  std::vector<NamedNetwork> networks;  // own_networks()
  std::string gpu_variable;            // node_gpus(), as the two that follow
  std::vector<std::string> gpus;
  std::vector<std::int32_t> near;
  Seat seat;
  std::string machine{};                 // own_machine(): equal for agents whose ranks can share memory
  std::int32_t slots = 0;                // places for ranks that it brings, where it has called to join a job
  std::string processor{};               // own_processor(): the agent's executable runs on nodes with this one
  double processor_limit = 0;            // of the cgroup, in processors; 0: none
  std::vector<std::string> addresses{};  // own_addresses()

  static void fields(auto& m, auto& walk) {
    walk(m.version, m.host_name, m.pid, m.reserved_port, m.socket_path, m.resume_path, m.networks);
    walk(m.gpu_variable, m.gpus, m.near, m.seat, m.machine, m.cores, m.slots, m.processor);
    walk(m.processor_limit, m.addresses);
  }
  [[nodiscard]] std::string encode() const;
  static Result<ReadyMessage> decode(std::string_view body);
};

// What the launcher says last. Who has called to join a job tells its user, and ends with the code.
struct ByeMessage {
  std::int32_t code = 0;  // as hvdrun's own
  std::string why;        // empty: the job is over, or has no more use for the agent

  static void fields(auto& m, auto& walk) { walk(m.code, m.why); }
  [[nodiscard]] std::string encode() const;
  static Result<ByeMessage> decode(std::string_view body);
};

struct ResumeMessage {
  std::string resume_path;     // of the agent that has the session
  std::string token;           // the session's
  std::uint64_t received = 0;  // the numbered frames of this session that the launcher has

  static void fields(auto& m, auto& walk) { walk(m.resume_path, m.token, m.received); }
  [[nodiscard]] std::string encode() const;
  static Result<ResumeMessage> decode(std::string_view body);
};

struct StartMessage {
  struct Rank {
    std::int32_t rank = 0;
    std::vector<std::pair<std::string, std::string>> env;
    CpuList cpus;                     // that it is bound to; empty: not bound
    std::vector<std::string> argv{};  // what this one runs; empty: as the others
    bool reads_input = false;         // its standard input is hvdrun's; else there is nothing in it

    static void fields(auto& m, auto& walk) { walk(m.rank, m.env, m.cpus, m.argv, m.reads_input); }
  };
  std::string cwd;
  std::vector<std::string> argv;
  std::vector<std::string> unset;                         // removed from the agent's own environment
  std::vector<std::pair<std::string, std::string>> env;   // set for every rank, over the agent's own
  std::vector<std::pair<std::string, std::string>> last;  // set last: the user's -x
  std::vector<Rank> ranks;
  bool may_restart = false;  // a rank that fails may be started anew: the node is not over before the launcher says so
  std::vector<HostRun> hosts;  // as a host file written beside the agent's socket before ranks start (hostfile_beside)
  std::vector<std::pair<std::string, std::string>> files;  // name and text, of mode 0600 beside the socket likewise
  std::uint32_t input_window = 0;    // bytes of Input that may be under way, at most kInputWindow; 0: no rank reads it
  bool is_joining = false;           // the job runs, and these ranks wait to be taken in
  std::uint32_t generation = 0;      // the present one then
  std::vector<std::string> results;  // patterns of files in the brought folder that come home at the end
  std::vector<std::string> proposed{};  // variables in a rank's env that give way to what the node has of its own

  static void fields(auto& m, auto& walk) {
    walk(m.cwd, m.argv, m.unset, m.env, m.last, m.ranks, m.may_restart, m.hosts, m.input_window, m.files);
    walk(m.is_joining, m.generation, m.results, m.proposed);
  }
  [[nodiscard]] std::string encode() const;
  static Result<StartMessage> decode(std::string_view body);
};

// The ranks of an elastic job meet again, because one was lost or because some have come. The job's first generation is
// number 0, and no message says so. "Rank" without another word is the number that a process was started with.
struct GenerationMessage {
  enum class Kind : std::uint8_t {
    kStart = 1,    // the generation stays; a rank may be started again, and `is_growing` may be news
    kChanged = 2,  // ranks wait to be taken in: the members are to leave, and to call again, when it suits them
    kBroken = 3,   // the present one is over, for a cause; who calls waits, since too few are left
    kFormed = 4,   // here is a new one; with a cause, the last one is over for it
  };
  struct Member {
    std::int32_t rank = 0;
    GenerationPlace place;

    static void fields(auto& m, auto& walk) { walk(m.rank, m.place); }
  };
  Kind kind = Kind::kStart;
  std::uint32_t number = 0;  // of the new generation
  std::string cause;
  std::vector<Member> members;         // those of this node
  std::optional<StartMessage> start;   // of a rank of this node that is started again
  std::vector<std::int32_t> released;  // ranks of this node that are members no more, and are to end
  bool is_growing = false;             // ranks are being started, or wait, that the members will take in

  static void fields(auto& m, auto& walk) {
    walk(bounded(m.kind, Kind::kStart, Kind::kFormed), m.number, m.cause, m.members, embedded(m.start));
    walk(m.released, m.is_growing);
  }
  [[nodiscard]] std::string encode() const;
  static Result<GenerationMessage> decode(std::string_view body);
};

// A rank's runtime has said hello.
struct JoinedMessage {
  std::int32_t rank = 0;
  std::uint32_t generation = 0;  // the newest that its agent knew then
  bool is_waiting = false;       // it is no member, and waits until it is one

  static void fields(auto& m, auto& walk) { walk(m.rank, m.generation, m.is_waiting); }
  [[nodiscard]] std::string encode() const;
  static Result<JoinedMessage> decode(std::string_view body);
};

struct StopMessage {
  std::int32_t signal = 0;     // first rung: SIGTERM, or SIGKILL for "now"
  std::uint32_t grace_ms = 0;  // until SIGKILL
  std::vector<std::int32_t>
      spared{};  // ranks that are failing, and get no signal before SIGKILL: they end by themselves

  static void fields(auto& m, auto& walk) { walk(m.signal, m.grace_ms, m.spared); }
  [[nodiscard]] std::string encode() const;
  static Result<StopMessage> decode(std::string_view body);
};

struct StartFailedMessage {
  std::int32_t rank = 0;
  Error why{Code::kInternal, ""};
  std::string place{};  // the directory or script that `why` is about; empty: it is about something else

  static void fields(auto& m, auto& walk) { walk(m.rank, m.why, m.place); }
  [[nodiscard]] std::string encode() const;
  static Result<StartFailedMessage> decode(std::string_view body);
};

struct OutputMessage {
  std::int32_t rank = 0;
  StreamId stream = StreamId::kStdout;
  std::string_view bytes;  // into the frame's body

  static Result<OutputMessage> decode(std::string_view body);
};

// What a rank has told of a failure; Exited may follow soon, later, or never.
struct FailingMessage {
  std::int32_t rank = 0;
  FailureNews news;
  std::uint32_t generation = 0;  // in which news.by is a rank

  [[nodiscard]] std::string encode() const;
  static Result<FailingMessage> decode(std::string_view body);
};

struct ExitedMessage {
  std::int32_t rank = 0;
  ExitStatus status;
  ExitDetail detail{};

  static void fields(auto& m, auto& walk) {
    walk(m.rank, bounded(m.status.kind, ExitStatus::Kind::kExited, ExitStatus::Kind::kSignalled), m.status.value);
    walk(m.status.has_core, m.status.out_of_memory, m.detail.memory, m.detail.core);
  }
  [[nodiscard]] std::string encode() const;
  static Result<ExitedMessage> decode(std::string_view body);
};

struct ExchangeMessage {
  std::int32_t rank = 0;
  std::string key;
  std::string value;
  std::uint32_t generation = 0;

  static void fields(auto& m, auto& walk) { walk(m.rank, m.key, m.value, m.generation); }
  [[nodiscard]] std::string encode() const;
  static Result<ExchangeMessage> decode(std::string_view body);
};

struct ExchangedMessage {
  std::string key;
  std::vector<std::string> values;
  std::uint32_t generation = 0;

  static void fields(auto& m, auto& walk) { walk(m.key, m.values, m.generation); }
  [[nodiscard]] std::string encode() const;
  static Result<ExchangedMessage> decode(std::string_view body);
};

struct RelayStartMessage {
  std::uint32_t command = 0;
  std::vector<std::string> argv;

  static void fields(auto& m, auto& walk) { walk(m.command, m.argv); }
  [[nodiscard]] std::string encode() const;
  static Result<RelayStartMessage> decode(std::string_view body);
};

struct RelayOverMessage {
  std::uint32_t command = 0;
  std::optional<ExitStatus> status;  // nothing: it lives on without its output, or was never started
  std::string how;                   // "exited with code 1", "closed its output", "no such program: ..."

  static void fields(auto& m, auto& walk) {
    walk(m.command, presence(m.status), m.how);
    if (m.status) {
      walk(bounded(m.status->kind, ExitStatus::Kind::kExited, ExitStatus::Kind::kSignalled), m.status->value);
    }
  }
  [[nodiscard]] std::string encode() const;
  static Result<RelayOverMessage> decode(std::string_view body);
};

// The body of each of the others about a relayed command.
struct RelayMessage {
  std::uint32_t command = 0;
  std::string_view bytes;  // into the frame's body

  static Result<RelayMessage> decode(std::string_view body);
};

// Where the agent whose socket this is keeps the job's host file; both ends agree on it.
std::string hostfile_beside(const std::string& socket_path);

std::string agent_frame(AgentMessage type, std::string_view body = {});
// Output or OutputEnd, without a copy of the bytes in between.
std::string output_frame(std::int32_t rank, StreamId stream, std::string_view bytes);
std::string output_end_frame(std::int32_t rank, StreamId stream);
std::string relay_body(std::uint32_t command, std::string_view bytes = {});
std::string relay_number_body(std::uint32_t command, std::uint32_t number);
Result<std::uint32_t> decode_relay_number(const RelayMessage& message);
// Bodies of one or two numbers.
std::string number_body(std::int32_t a);
std::string number_body(std::int32_t a, std::int32_t b);
Result<std::int32_t> decode_number(std::string_view body);
Result<std::pair<std::int32_t, std::int32_t>> decode_two_numbers(std::string_view body);
std::string count_body(std::uint64_t count);
Result<std::uint64_t> decode_count(std::string_view body);

}  // namespace hvd::launch
