// JobSpec: everything about one job that the user decided. Value type; made by cli/job_settings.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/host_spec.h"
#include "launcher/job/output_rotation.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// Which GPUs a rank sees.
enum class GpuMode : std::uint8_t {
  kLocal,  // those of the job on its node; its own is the one of its local rank
  kOne,    // its own
  kNone    // whatever the node has
};

// Which processors a rank runs on.
enum class BindMode : std::uint8_t {
  kNone,  // all that its node allows
  kCore,  // its own cores
  kNuma   // those of its memory (NUMA) node
};

// Which ranks are given hvdrun's standard input; for the others there is nothing in theirs.
enum class InputMode : std::uint8_t { kNone, kOne, kAll };

// Who starts the ranks' agents.
enum class LauncherKind : std::uint8_t {
  kOwn,   // we do: one for each node, here, by SSH or by the rsh command
  kMpi,   // Open MPI's mpirun does: one for each rank
  kSpark  // Spark's tasks do, one for each rank, wherever they run: the hosts are known when all agents have called
};

struct JobSpec {
  int size = 0;    // ranks; 0: one per slot
  HostList hosts;  // empty: this machine
  std::vector<std::string> argv;
  std::string cwd;
  std::vector<std::string> environment;                       // of hvdrun, "NAME=value"
  std::uint64_t open_files = 0;                               // likewise: its limit on them; 0: unknown
  std::vector<std::pair<std::string, std::string>> user_env;  // -x NAME=value; wins over everything
  std::vector<std::string> interfaces;  // network interfaces for what ranks tell each other, best first; empty: any
  GpuMode gpus = GpuMode::kLocal;
  BindMode bind = BindMode::kNone;
  InputMode input = InputMode::kNone;
  int input_rank = 0;                                     // of InputMode::kOne
  Duration start_timeout = std::chrono::seconds(60);      // until every rank runs
  Duration grace = std::chrono::seconds(10);              // between the first signal and SIGKILL when a job is stopped
  Duration reconnect_timeout = std::chrono::seconds(60);  // for a node whose connection broke; 0: it is lost at once
  Duration timeout = Duration::zero();                    // of the whole job, from its ranks' start; 0: none
  int restart_limit = 0;                                  // how many times ranks that fail are started anew
  Duration elastic_timeout = std::chrono::seconds(600);   // for the ranks to meet again then

  // of what a job file starts
  bool tells_place = true;   // ranks are told their place among the others; a program that starts ranks itself is not
  std::vector<int> servers;  // ranks that serve the others, and are ended when these have

  // what the user sees
  bool tags = true;
  bool json_events = false;  // hvdrun's own words as events for programs
  bool gather = false;       // equal lines of several ranks are shown as one
  bool timestamps = false;
  std::array<bool, 2> color{};                         // of tags on standard output, on standard error
  bool live = false;                                   // rows that are drawn anew, on a terminal
  bool answers = false;                                // somebody may, by standard input: questions are shown
  std::string output_dir;                              // empty: the ranks' output is not kept
  OutputRotation output_rotation;                      // of each of its files
  std::vector<std::string> labels;                     // of the ranks, in their tags; empty: their numbers
  bool shows_ranks = true;                             // what they print is on the console, too
  std::vector<std::string> hidden;                     // texts that stand nowhere in what is shown and kept
  std::string kept_dir;                                // where the files of a job file's job are; empty: nowhere
  std::vector<std::array<std::string, 2>> kept_files;  // [rank][is_error] there; ranks may share one
  bool quiet = false;
  bool verbose = false;

  // how nodes are reached
  int ssh_port = 0;
  std::string ssh_identity_file;
  std::string ssh_config_file;
  int fanout = 64;          // most nodes that one place connects to: beyond it they form a tree; 0: no tree
  std::string rsh_command;  // reaches all hosts but this one; empty: ssh does
  std::string agent_path;

  LauncherKind launcher = LauncherKind::kOwn;
  int driver_fd = -1;                     // kSpark: the way to the program that starts the tasks (run/driver_pipe.h)
  std::vector<std::string> mpi_args;      // further words for mpirun
  std::vector<std::string> binding_args;  // those by which mpirun binds ranks; empty: it does not
};

}  // namespace hvd::launch
