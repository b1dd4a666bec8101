// These are the command lines of the job service as values; `submit` is not among them, since it takes the options of a
// job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

enum class Verb : std::uint8_t {
  kClusterAdd,
  kClusterShow,
  kClusterList,
  kClusterDrain,
  kClusterResume,
  kClusterRemove,
  kPs,
  kShow,
  kWait,
  kFiles,
  kLogs,
  kStop,
  kRm,
  kNodes,
  kExec,
  kAttach,
  kReport,
  kRecover,   // not for users: does no more than each of these does first, which is to look for dead supervisors
  kSupervise  // not for users: the process of one job
};

struct ServiceOptions {
  Verb verb = Verb::kPs;
  std::string cluster;
  std::string job;                 // its name or number
  std::vector<std::string> jobs;   // wait
  std::vector<std::string> nodes;  // drain, resume
  // cluster add
  std::string cluster_file;
  std::string hosts;
  std::string hostfile;
  // what is shown
  bool json = false;
  bool all = false;
  std::string field;
  // files, logs
  bool follow = false;
  std::string file;
  std::string path = ".";
  std::string directory = "stdouterr";
  int rank = -1;
  std::string node;
  bool no_wait = false;
  // report
  std::string out;                   // a file, or "-"
  bool serves = false;               // to a browser, all jobs
  std::string serve_at;              // an address of this machine alone; empty: a free port of 127.0.0.1
  std::vector<std::string> command;  // exec
  // supervise
  std::string state_root;
  std::int64_t id = 0;
};

bool is_service_command(const std::string& word);
// Returns "cluster, ps, ...".
std::string service_commands();

struct CliOptions;
// Reads words that begin with one of these commands.
Result<CliOptions> parse_service(std::vector<std::string> words);

}  // namespace hvd::cli
