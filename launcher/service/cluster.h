// Cluster: a named set of hosts that jobs wait for, as its file says it. Value type; the reader is total, and whatever
// it takes can be written and read again.
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

// What a job has of its cluster where the command line that submits it says nothing else.
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
  std::string size;  // what its hosts are called ("VM Size"); only shown
  HostList hosts;
  std::vector<std::pair<std::string, std::string>> mounts;  // name, directory of the hosts
  std::vector<FileSystem> file_systems;                     // that are mounted for each job; none is in `mounts`
  std::string mount_root;                                   // of all other mounts; empty: none
  std::vector<std::pair<std::string, std::string>> env;     // as -x
  ClusterDefaults defaults;

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct LoadedCluster {
  Cluster cluster;
  Notices notices;
};

// All errors are the user's (kInvalid) and begin with FILE:LINE:COLUMN. The name is `name`.
Result<LoadedCluster> parse_cluster(std::string_view text, const std::string& file, const std::string& name);
Result<LoadedCluster> read_cluster(const std::string& file, const std::string& name);

// The same as a file (JSON).
std::string cluster_text(const Cluster& cluster);
// A host as an entry of a host list.
std::string host_entry(const HostSpec& host);

const Schema& cluster_schema();
// Names of clusters are those that jobs may have.
Result<void> check_cluster_name(std::string_view name);

}  // namespace hvd::launch
