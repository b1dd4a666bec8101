#include "launcher/placement/cpu_binding.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace hvd::launch {
namespace {

using Home = std::vector<std::int32_t>;  // NUMA nodes, ascending

// Returns part number `part` of `parts` even parts of `items`; it holds at least one item.
template <typename Item>
std::vector<Item> part_of(const std::vector<Item>& items, std::size_t part, std::size_t parts) {
  const std::size_t begin = part * items.size() / parts;
  const std::size_t end = std::max(begin + 1, (part + 1) * items.size() / parts);
  return {items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(end)};
}

CpuList cpus_of(const std::vector<CpuCore>& cores) {
  CpuList cpus;
  for (const CpuCore& core : cores) {
    cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Home all_nodes(const std::vector<CpuCore>& cores) {
  Home nodes;
  for (const CpuCore& core : cores) {
    if (nodes.empty() || nodes.back() != core.numa_node) {
      nodes.push_back(core.numa_node);
    }
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

// Returns how many threads each of so many ranks may run at once on `processors`, of which the control groups leave
// `limit`.
int threads_of_each(std::size_t processors, double limit, std::size_t ranks) {
  const double room = limit > 0 ? std::min(limit, static_cast<double>(processors)) : static_cast<double>(processors);
  return std::max(1, static_cast<int>(room / static_cast<double>(ranks)));
}

}  // namespace

std::vector<RankCpus> bind_ranks(BindMode mode, const std::vector<CpuCore>& cores, int ranks,
                                 const std::vector<std::int32_t>& near, double limit) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<RankCpus> bound(count);
  const std::size_t processors = cpus_of(cores).size();
  const int most = threads_of_each(processors, limit, count);
  if (mode == BindMode::kNone || cores.empty()) {
    const bool has_all = count == 1 && static_cast<std::size_t>(most) >= processors;
    for (RankCpus& rank : bound) {
      rank.threads = has_all ? 0 : most;
    }
    return bound;
  }
  const Home nodes = all_nodes(cores);
  std::map<Home, std::vector<std::size_t>> ranks_of_home;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const bool is_near = rank < near.size() && std::find(nodes.begin(), nodes.end(), near[rank]) != nodes.end();
    ranks_of_home[is_near ? Home{near[rank]} : part_of(nodes, rank, count)].push_back(rank);
  }
  for (const auto& [home, members] : ranks_of_home) {
    std::vector<CpuCore> there;
    std::copy_if(cores.begin(), cores.end(), std::back_inserter(there), [&home = home](const CpuCore& core) {
      return std::find(home.begin(), home.end(), core.numa_node) != home.end();
    });
    for (std::size_t i = 0; i < members.size(); ++i) {
      bound[members[i]].cpus = cpus_of(mode == BindMode::kCore ? part_of(there, i, members.size()) : there);
    }
  }
  std::map<CpuList, int> sharing;
  for (const RankCpus& rank : bound) {
    ++sharing[rank.cpus];
  }
  for (RankCpus& rank : bound) {
    rank.threads = std::max(1, static_cast<int>(rank.cpus.size()) / sharing[rank.cpus]);
    rank.threads = limit > 0 ? std::min(rank.threads, most) : rank.threads;
  }
  return bound;
}

std::string bind_warning(BindMode mode, const NodePlan& node, const std::vector<CpuCore>& cores) {
  if (mode != BindMode::kCore || cores.empty() || node.ranks.size() <= cores.size()) {
    return "";
  }
  return std::to_string(node.ranks.size()) + " ranks on " + node.host.name + " for " + std::to_string(cores.size()) +
         (cores.size() == 1 ? " core" : " cores") + ": some share one (--bind core)";
}

}  // namespace hvd::launch
