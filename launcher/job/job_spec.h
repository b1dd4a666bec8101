// JobSpec holds everything about one job that the user decided. Value type; made by cli/options/job_settings.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/host_spec.h"
#include "launcher/job/metrics_place.h"
#include "launcher/job/output_rotation.h"
#include "launcher/job/shown_ranks.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// GpuMode says which GPUs a rank sees.
enum class GpuMode : std::uint8_t {
  kLocal,  // all GPUs of the job on its node; the rank's own is the one with the number of its local rank
  kOne,    // the rank's own GPU alone
  kNone    // all GPUs of the node, as its environment allows
};

// BindMode says which processors a rank runs on.
enum class BindMode : std::uint8_t {
  kNone,  // all that its node allows
  kCore,  // its own cores
  kNuma   // all of its memory (NUMA) node
};

// InputMode says which ranks are given hvdrun's standard input; the others read end of file.
enum class InputMode : std::uint8_t { kNone, kOne, kAll };

// LauncherKind says who starts the ranks' agents.
enum class LauncherKind : std::uint8_t {
  kOwn,        // hvdrun does: one for each node, here, by SSH or by the rsh command
  kMpi,        // Open MPI's mpirun does: one for each rank
  kSlurm,      // a step of Slurm does: one for each node of its job
  kJsrun,      // jsrun does: one for each compute node of LSF's job
  kSpark,      // Spark's tasks do, one for each rank, wherever they run; hosts are known when all agents have connected
  kKubernetes  // pods do, one for each node; their names are known when all agents have connected
};

// True where a batch system's own command starts the agents.
constexpr bool is_step(LauncherKind kind) {
  return kind == LauncherKind::kSlurm || kind == LauncherKind::kJsrun;
}

// HostDiscovery says where hosts come from that join or leave a running job.
struct HostDiscovery {
  std::string script;            // a command that prints the hosts
  std::string hostfile;          // a host file that is read again when it changes; at most one of the two is set
  int slots = 0;                 // of a host that says none; 0: each must say it
  bool is_slots_of_all = false;  // `slots` counts for each host, whatever it says: all nodes of a job file are equal
  Duration interval = std::chrono::seconds(1);  // between two looks
  int most_ranks = 0;  // of the job, also where machines call to join it; 0: as many as there are slots
  // How long a host that has failed is left alone: after the first failure, and at most.
  Duration cooldown_least = std::chrono::seconds(10);
  Duration cooldown_most = std::chrono::minutes(10);

  [[nodiscard]] bool is_on() const { return !script.empty() || !hostfile.empty(); }
};

// FreshStarts says how often all ranks of a job are ended and started anew, because one of them was lost.
struct FreshStarts {
  int limit = 0;       // at most so often; 0: never
  int before = 0;      // so often before this start
  int first_size = 0;  // ranks of the first start, by which the folders of their output are named
};

struct JobSpec {
  int size = 0;    // ranks; 0: one per slot
  HostList hosts;  // empty: this machine
  std::vector<std::string> argv;
  std::string cwd;
  std::string sync_dir;  // the folder that is brought to other machines, where the ranks start in it; empty: none
  std::vector<std::string> sync_back;    // patterns of files there that come home when the ranks have ended
  std::vector<std::string> environment;  // hvdrun's own, as "NAME=value"
  std::uint64_t open_files = 0;          // hvdrun's own limit on open files; 0: unknown
  std::vector<std::pair<std::string, std::string>> user_env;  // -x NAME=value; wins over everything
  std::vector<std::string> interfaces;  // network interfaces for the traffic between ranks, best first; empty: any
  GpuMode gpus = GpuMode::kLocal;
  BindMode bind = BindMode::kNone;
  InputMode input = InputMode::kNone;
  int input_rank = 0;                                     // used with InputMode::kOne
  Duration start_timeout = std::chrono::seconds(60);      // until all hosts must have answered
  Duration grace = std::chrono::seconds(10);              // between the first signal and SIGKILL when a job is stopped
  Duration reconnect_timeout = std::chrono::seconds(60);  // for a node whose connection broke; 0: it is lost at once
  // Between two signs of life on a connection to another host; after three without an answer it is lost.
  Duration heartbeat = std::chrono::seconds(10);
  Duration stall_after = std::chrono::seconds(60);  // a rank that waits so long is stalled; 0: no matter how long
  bool is_silence_a_stall = false;      // also that no rank prints for so long, in a job that does not use libhvd
  Duration timeout = Duration::zero();  // limits the whole job, from the start of its ranks; 0: none
  // The setting that the user has written for it.
  std::string timeout_setting = "--timeout";
  int least_ranks = 0;                 // an elastic job goes on with so many; 0: with no fewer than all
  int restart_limit = 0;               // how many times failing ranks are restarted
  std::optional<int> reset_limit;      // how many times an elastic job's ranks may change; nothing: any number
  bool excludes_failed_hosts = false;  // a host on which a rank fails is done without as a whole
  Duration elastic_timeout = std::chrono::seconds(600);  // limits how long the ranks take to meet again then
  // How long a job waits for others in place of those that it has lost, before it goes on with fewer.
  Duration elastic_wait = Duration::zero();
  FreshStarts fresh;  // with these no single rank is restarted

  HostDiscovery discovery;
  std::string join_file;  // written for machines that call to join the running job; empty: none may

  // settings of what a job file starts
  bool tells_place = true;   // ranks get their place in their environment; a program that starts ranks itself must not
  std::vector<int> servers;  // ranks that serve the others, and are ended when these have ended

  // settings of who may ask a running job
  std::string live_dir;  // where it listens for questions of its user (launcher/live); empty: nowhere
  std::string name;      // empty: it has none
  std::string uuid;      // of a submitted job; else empty

  // settings of what the user sees
  bool tags = true;
  bool json_events = false;  // hvdrun's own messages are printed as events for programs
  bool gather = false;       // equal lines of several ranks are shown as one
  bool timestamps = false;
  std::array<bool, 2> color{};      // colours the tags of standard output, of standard error
  bool live = false;                // show rows that are redrawn, on a terminal
  bool answers = false;             // somebody may answer on standard input, so questions are shown
  std::string output_dir;           // empty: the ranks' output is not kept
  std::string page;                 // the file of the job's page; empty: none
  std::string spans;                // the file of its spans; empty: none
  std::string trace_parent;         // TRACEPARENT: the span in which hvdrun was started
  OutputRotation output_rotation;   // for each of its files
  std::vector<std::string> labels;  // shown in the ranks' tags; empty: their numbers
  bool shows_ranks = true;          // what they print also goes to the console
  ShownRanks shown_ranks;           // the ranks of which it does
  std::vector<std::string> hidden;  // texts that are masked in all that is shown or kept
  std::string unkept;               // what ranks print from this text on is kept in no file; empty: all is
  std::string kept_dir;             // where the files of a job file's job are; empty: nowhere
  std::vector<std::array<std::string, 2>> kept_files;  // [rank][is_error] names in it; ranks may share one
  std::string metrics_file;                            // where the job's metrics are kept; empty: nowhere
  MetricsPlace metrics_place;                          // where they can be asked for
  bool quiet = false;
  bool verbose = false;

  // settings of how nodes are reached
  int ssh_port = 0;
  std::string ssh_identity_file;
  std::string ssh_config_file;
  int fanout = 64;          // how many nodes one process connects to at most: beyond it they form a tree; 0: no tree
  std::string rsh_command;  // reaches all hosts but this one; empty: ssh does
  std::string agent_path;

  LauncherKind launcher = LauncherKind::kOwn;
  bool slots_are_gpus =
      false;  // kSlurm, kJsrun, kKubernetes: a node gets as many ranks as it has GPUs, which its agent counts
  std::string engine_job;  // kSlurm, kJsrun: the number of the job, and what its slots follow from
  std::string slots_from;
  int engine_gpus = 0;       // kSlurm: how many GPUs the job has; 0: not known
  std::string node_gpus;     // kSlurm: the GPUs that its step asks for on each node, as in "a100:8"; empty: none
  std::string requeued_job;  // Slurm's job, put back into its queue when a signal says that its time is over; or empty
  std::string allocation;    // what is said of hosts that a batch system or a variable has given; empty: nothing
  int agent_port = 0;        // kKubernetes: where the agents call
  std::string key_file;      // kKubernetes: the key that they prove to have
  int driver_fd = -1;        // kSpark: leads to the program that starts the tasks (engines/driver_pipe.h)
  std::vector<std::string> mpi_args;      // further arguments for mpirun
  std::vector<std::string> binding_args;  // the arguments by which mpirun binds ranks; empty: it does not
};

}  // namespace hvd::launch
