// Flags holds the values of the command line as they were written, before anything is looked up or checked against
// anything else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/tunable.h"
#include "launcher/jobfile/file_system.h"

namespace hvd::cli {

struct Flags {
  std::vector<std::string> notices;  // about words that have no effect
  int np = 0;
  int fanout = 64;
  std::string hosts;
  std::string hostfile;
  std::vector<std::string> env;
  std::string config_file;
  std::optional<double> start_timeout_s;
  double timeout_s = 0;
  std::string timeout_setting;  // what a user calls it, where a manifest has it from a job file
  std::optional<double> stacks_on_stall_s;
  double grace_s = 10;
  std::optional<double> heartbeat_s;
  double reconnect_timeout_s = 60;
  std::optional<int> min_np;
  std::optional<int> max_np;
  std::optional<int> elastic_restarts;
  std::optional<int> reset_limit;
  bool exclude_failed_hosts = false;
  std::optional<double> elastic_timeout_s;
  std::optional<double> elastic_wait_s;
  std::string elastic;  // "ranks", "restart"; empty: the default
  std::string host_discovery_script;
  bool watch_hostfile = false;
  std::string join_file;
  std::optional<int> slots_per_host;
  std::optional<double> discovery_interval_s;
  std::vector<double> cooldown_range_s;
  std::string output_filename;
  std::string report;
  std::string spans;
  std::string output_rotate;
  bool timestamps = false;
  std::string color = "auto";
  std::string gpus = "local";
  std::string bind = "none";
  std::string input;  // a rank's number, "all", "none"; empty: the default
  std::string metrics_file;
  std::string metrics_listen;
  std::string metrics_token;
  std::string sync;  // the folder; empty: none
  std::vector<std::string> sync_back;
  bool no_tags = false;
  bool gather = false;
  std::string show_ranks;  // empty: all
  bool quiet = false;
  bool verbose = false;
  bool check_build = false;
  bool json = false;
  bool version = false;
  std::string document;
  int ssh_port = 0;
  std::string ssh_identity_file;
  std::string ssh_config;
  std::vector<std::string> interfaces;
  bool tcp = false;
  launch::Settings settings;  // tunables given as flags
  std::string rsh;
  std::string launcher;             // empty: the default
  std::string engine;               // empty: any that is found
  std::vector<std::string> sbatch;  // further options of sbatch
  bool requeue_on_notice = false;   // Slurm's job is put back into the queue when a signal ends it
  std::string status_file;          // gets the exit code at the end
  std::string plm_rsh_agent;        // of mpirun's -mca
  std::string plm_rsh_args;         // the same
  int driver_fd = -1;               // for --launcher spark
  std::string unkept_variable;      // its value begins what is kept in no file; empty: nothing does
  int parent = 0;                   // hvdrun ends with this process, which has started it; 0: it does not
  int nodes = 0;                    // this and those below: for --launcher kubernetes
  int agent_port = 4711;
  std::string key_file;
  std::string manifest_kind = "jobset";  // this and those below: for manifest
  std::string image;
  std::string hvdrun_image;
  std::string secret_name;
  int gpus_per_node = 0;
  bool mpi = false;
  bool gloo = false;
  bool jsrun = false;
  std::string mpi_args;
  std::string binding_args;
  std::string job_file;
  std::string job_name;
  std::vector<std::string> mounts;  // NAME=DIR
  std::string mount_root;
  std::string storage_account;
  std::string container;  // empty: auto
  std::vector<std::string> command;
  // settings of a job of the service
  std::string cluster;                                              // submit: empty: the only one; plan: none
  std::vector<std::string> given;                                   // the options that were given
  std::optional<std::string> job_text;                              // what the job file held; else it is read
  std::string job_uuid;                                             // empty: a new one
  std::vector<std::pair<std::string, std::string>> cluster_mounts;  // used after those of other flags
  std::vector<launch::FileSystem> cluster_file_systems;
  // options of bench
  std::string bench_min = "4";
  std::string bench_max = "64M";
  std::int64_t bench_factor = 4;
  std::string bench_type = "float32";
  std::string bench_op = "sum";
  std::int64_t bench_iters = 0;
  std::int64_t bench_warmup = 5;
  std::string tune;
  std::vector<std::string> plots;

  // True when the user has given this option, be it with its default value. The name is the long one, without dashes.
  [[nodiscard]] bool has(const char* option) const {
    return std::find(given.begin(), given.end(), option) != given.end();
  }

  // True when an option asks for a job that goes on after it has lost ranks or hosts, or that takes in others.
  [[nodiscard]] bool asks_for_elastic() const {
    const bool follows_hosts = watch_hostfile || !host_discovery_script.empty() || !join_file.empty();
    return elastic_restarts.value_or(1) > 0 &&
           (elastic_restarts || min_np || max_np || reset_limit || exclude_failed_hosts || elastic_timeout_s ||
            elastic_wait_s || !elastic.empty() || follows_hosts);
  }
};

}  // namespace hvd::cli
