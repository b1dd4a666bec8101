// Cluster is a named set of hosts that jobs wait for, as its file describes it. Value type. The reader accepts any text
// or reports an error; what it accepts can be written and read again.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/job/host_spec.h"
#include "launcher/jobfile/file_system.h"
#include "launcher/jobfile/schema.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// ClusterDefaults are settings that a job takes from its cluster when the command line that submits it does not give
// them.
struct ClusterDefaults {
  std::string container;
  std::string rsh;
  std::string ssh_config;
  std::string ssh_identity_file;
  std::optional<int> ssh_port;
  std::optional<double> start_timeout_s;
  std::optional<double> reconnect_timeout_s;
  std::optional<double> grace_s;

  friend bool operator==(const ClusterDefaults&, const ClusterDefaults&) = default;
};

struct Cluster {
  std::string name;
  std::string size;  // a name for its kind of host ("VM Size"); only shown
  HostList hosts;
  std::vector<std::pair<std::string, std::string>> mounts;  // name, directory on the hosts
  std::vector<FileSystem> file_systems;                     // mounted for each job; none of them is in `mounts`
  std::string mount_root;                                   // for all other mounts; empty: none
  std::vector<std::pair<std::string, std::string>> env;     // same as -x
  ClusterDefaults defaults;

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct LoadedCluster {
  Cluster cluster;
  Notices notices;
};

// All errors are the user's (kInvalid) and begin with FILE:LINE:COLUMN. `name` becomes the cluster's name.
Result<LoadedCluster> parse_cluster(std::string_view text, const std::string& file, const std::string& name);
Result<LoadedCluster> read_cluster(const std::string& file, const std::string& name);

// Returns the cluster as the text of such a file (JSON).
std::string cluster_text(const Cluster& cluster);
// Returns a host as an entry of a host list.
std::string host_entry(const HostSpec& host);

// Cluster names follow the same rules as job names.
Result<void> check_cluster_name(std::string_view name);

}  // namespace hvd::launch
