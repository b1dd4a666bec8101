#include "launcher/jobfile/job_layout.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

void spread(int count, JobProcess::Role role, int nodes, std::vector<JobProcess>& processes) {
  int index = 0;
  for (int node = 0; node < nodes; ++node) {
    const int here = count / nodes + (node < count % nodes ? 1 : 0);
    for (int i = 0; i < here; ++i) {
      processes.push_back({node, role, index++});
    }
  }
}

Result<int> process_count(const JobFile& job, int wanted) {
  if (job.tool.kind == Toolkit::kCustom) {
    return 1;  // one process on the first node, which starts the others itself
  }
  const int count = wanted > 0                              ? wanted
                    : job.tool.kind == Toolkit::kTensorFlow ? job.tool.worker_count.value_or(job.node_count)
                                                            : job.tool.process_count.value_or(job.node_count);
  if (count < job.node_count) {
    return error_at(job.file, job.tool.at,
                    "too few processes (" + std::to_string(count) + ") for " +
                        counted(static_cast<std::size_t>(job.node_count), "node") +
                        ": some would have none; give more processes (processCount, -np) or fewer nodes");
  }
  if (count > kMostProcesses) {
    return error_at(job.file, job.tool.at,
                    std::to_string(count) + " processes (processCount, -np); there can be at most " +
                        std::to_string(kMostProcesses));
  }
  if (job.is_elastic() && count % job.node_count != 0) {
    return error_at(job.file, job.tool.at,
                    std::to_string(count) + " processes on " +
                        counted(static_cast<std::size_t>(job.node_count), "node") +
                        ": all nodes of an elastic job have the same number; give a multiple of nodeCount");
  }
  return count;
}

// Returns how many of the hosts the job takes.
Result<int> count_nodes(const JobFile& job, std::size_t hosts) {
  const int least = job.least_nodes();
  if (hosts < static_cast<std::size_t>(least)) {
    return error_at(job.file, job.min_nodes ? job.elastic_at : job.node_count_at,
                    "the job needs " + std::string(job.is_elastic() ? "at least " : "") +
                        counted(static_cast<std::size_t>(least), "node") + ", and there " +
                        (hosts == 1 ? "is " : "are ") + counted(hosts, "host") +
                        "; name more with -H or --hostfile, or a larger cluster");
  }
  return job.is_elastic() ? static_cast<int>(std::min(hosts, static_cast<std::size_t>(job.most_nodes()))) : least;
}

Result<int> server_count(const JobFile& job) {
  if (job.tool.kind != Toolkit::kTensorFlow) {
    return 0;
  }
  const int count = job.tool.server_count.value_or(job.node_count > 1 ? 1 : 0);
  if (count > job.node_count) {
    return error_at(job.file, job.tool.at,
                    counted(static_cast<std::size_t>(count), "parameter server") + " on " +
                        counted(static_cast<std::size_t>(job.node_count), "node") + "; expected at most one on each");
  }
  return count;
}

}  // namespace

Placement JobLayout::node_placement() const {
  HostList hosts = nodes;
  for (HostSpec& host : hosts) {
    host.slots = 1;
    host.gpus.clear();
  }
  return place(hosts, static_cast<int>(hosts.size())).value();
}

Placement JobLayout::rank_placement() const {
  return place(nodes, size()).value();
}

void JobLayout::add_node(const HostSpec& host, int count) {
  const auto same =
      std::find_if(nodes.begin(), nodes.end(), [&host](const HostSpec& h) { return h.name == host.name; });
  ids.push_back(same != nodes.end() ? ids[static_cast<std::size_t>(same - nodes.begin())]
                                    : file_ids({host.name}).front());
  slots.push_back(host.slots);
  nodes.push_back(host);
  nodes.back().slots = count;
  for (int i = 0; i < count; ++i) {
    processes.push_back({static_cast<int>(nodes.size()) - 1, JobProcess::Role::kRank, size()});
  }
}

Result<JobLayout> lay_out(const JobFile& job, const HostList& hosts, int processes) {
  HVD_TRY_ASSIGN(const int nodes, count_nodes(job, hosts.size()));
  JobLayout layout;
  layout.nodes.assign(hosts.begin(), hosts.begin() + nodes);
  std::vector<std::string> names;
  std::transform(layout.nodes.begin(), layout.nodes.end(), std::back_inserter(names),
                 [](const HostSpec& node) { return node.name; });
  layout.ids = file_ids(names);
  HVD_TRY_ASSIGN(int count, process_count(job, processes));
  if (job.is_elastic()) {
    count = count / job.node_count * nodes;
  }
  HVD_TRY_ASSIGN(const int servers, server_count(job));
  const bool has_roles = job.tool.kind == Toolkit::kTensorFlow;
  spread(count, has_roles ? JobProcess::Role::kWorker : JobProcess::Role::kRank,
         job.tool.kind == Toolkit::kCustom ? 1 : nodes, layout.processes);
  for (int i = 0; i < servers; ++i) {
    layout.processes.push_back({i, JobProcess::Role::kServer, i});
  }
  // Ranks go node by node. On each node the workers come first, so that rank 0 is the master.
  std::stable_sort(layout.processes.begin(), layout.processes.end(),
                   [](const JobProcess& a, const JobProcess& b) { return a.node < b.node; });
  for (std::size_t node = 0; node < layout.nodes.size(); ++node) {
    layout.slots.push_back(layout.nodes[node].slots);
    layout.nodes[node].slots =
        static_cast<int>(std::count_if(layout.processes.begin(), layout.processes.end(),
                                       [node](const JobProcess& p) { return p.node == static_cast<int>(node); }));
  }
  return layout;
}

std::vector<std::string> file_ids(const std::vector<std::string>& hosts) {
  std::vector<std::string> ids;
  for (std::string id : hosts) {
    std::replace_if(id.begin(), id.end(), [](char c) { return c == ':' || c == '%' || c == '/'; }, '_');
    if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
      id += "_" + std::to_string(ids.size());
    }
    ids.push_back(id);
  }
  return ids;
}

bool needs_mpi(const JobFile& job, const JobLayout& layout) {
  const std::string backend = lowered(job.tool.backend);
  switch (job.tool.kind) {
    case Toolkit::kCustomMpi:
    case Toolkit::kCntk:
    case Toolkit::kCaffe:
    case Toolkit::kChainer:
      return layout.size() > 1;
    case Toolkit::kPyTorch:
      return layout.size() > 1 && backend == "mpi";
    case Toolkit::kHorovod:
    case Toolkit::kCustom:
    case Toolkit::kTensorFlow:
    case Toolkit::kCaffe2:
      break;
  }
  return false;
}

}  // namespace hvd::launch
