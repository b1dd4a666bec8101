#include "launcher/samples/job_picture.h"

#include <algorithm>
#include <map>

namespace hvd::launch {
namespace {

// An operation that has lasted so long has ranks that wait in it.
constexpr std::uint64_t kWaitsMs = 2000;
// Differences below these are the usual noise.
constexpr double kFewCores = 0.5;
constexpr std::uint64_t kLittleMemory = 256U << 20U;

std::string doing(const RankShown& rank) {
  const RuntimeSample& runtime = rank.used.runtime;
  return runtime.operation.empty() ? "" : runtime.operation + " '" + runtime.tensor + "'";
}

bool is_running(const RankShown& rank) {
  return rank.state == "running" && rank.is_sampled;
}

template <typename Number>
Number median(std::vector<Number> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The operation in which more than half of the ranks wait; or half of them, as one of two, if the others wait in none.
std::string awaited_by_most(const std::vector<RankShown*>& ranks) {
  std::map<std::string, std::size_t> waiting;
  for (const RankShown* rank : ranks) {
    if (rank->used.has_runtime && rank->used.runtime.for_ms >= kWaitsMs && !doing(*rank).empty()) {
      ++waiting[doing(*rank)];
    }
  }
  for (const auto& [what, count] : waiting) {
    // A rank that has joined waits for those that have more data, as it should.
    const bool is_half = count * 2 == ranks.size() && waiting.size() == 1 && !what.starts_with("join ");
    if (count * 2 > ranks.size() || is_half) {
      return what;
    }
  }
  return "";
}

bool is_picture(const JobPicture& m) {
  return std::all_of(m.ranks.begin(), m.ranks.end(), [&m](const RankShown& rank) {
    return rank.node >= 0 && static_cast<std::size_t>(rank.node) < m.nodes.size();
  });
}

}  // namespace

HVD_MESSAGE(JobPicture, "Status", is_picture)

void join_nodes(JobPicture& view) {
  std::map<std::string, std::size_t> places;
  std::vector<NodeShown> joined;
  std::vector<std::int32_t> place_of;  // by a node's number before
  for (NodeShown& node : view.nodes) {
    const auto [found, is_new] = places.try_emplace(node.name, joined.size());
    place_of.push_back(static_cast<std::int32_t>(found->second));
    if (is_new) {
      joined.push_back(std::move(node));
      continue;
    }
    NodeShown& same = joined[found->second];
    same.is_connected = same.is_connected && node.is_connected;
    same.is_away = same.is_away || node.is_away;
    same.reconnects += node.reconnects;
    if (node.is_sampled) {
      same.is_sampled = true;
      same.cores = node.cores;
      same.memory_total = node.memory_total;
      same.memory_free = node.memory_free;
      same.gpus = std::move(node.gpus);
    }
  }
  for (RankShown& rank : view.ranks) {
    rank.node = place_of[static_cast<std::size_t>(rank.node)];
  }
  view.nodes = std::move(joined);
}

void mark_odd_ranks(JobPicture& view) {
  std::vector<RankShown*> running;
  for (RankShown& rank : view.ranks) {
    rank.odd = rank.state == "failed" || rank.state == "lost" ? rank.state : "";
    if (is_running(rank)) {
      running.push_back(&rank);
    }
  }
  if (running.size() < 2) {
    return;
  }
  const std::string awaited = awaited_by_most(running);
  std::vector<double> cores;
  std::vector<std::uint64_t> memory;
  for (const RankShown* rank : running) {
    cores.push_back(rank->cores);
    memory.push_back(rank->used.memory_bytes);
  }
  const double usual_cores = median(cores);
  const std::uint64_t usual_memory = median(memory);
  for (RankShown* rank : running) {
    if (!awaited.empty() && doing(*rank) != awaited) {
      rank->odd = "the others wait for it";
    } else if (running.size() > 2 && rank->cores < usual_cores / 2 && usual_cores - rank->cores > kFewCores) {
      rank->odd = "uses less processor than the others";
    } else if (running.size() > 2 && rank->used.memory_bytes > usual_memory / 2 * 3 &&
               rank->used.memory_bytes - usual_memory > kLittleMemory) {
      rank->odd = "uses more memory than the others";
    }
  }
}

}  // namespace hvd::launch
