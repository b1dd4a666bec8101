#include "runtime/coordinate/process_sets.h"

#include <algorithm>
#include <numeric>

#include "runtime/backend/cpu_backend.h"
#include "runtime/coordinate/solo_backend.h"
#include "runtime/execute/host_quick_path.h"
#include "runtime/execute/node_quick_path.h"
#include "runtime/rendezvous/subset_store.h"

namespace hvd {

Result<std::unique_ptr<Backend>> make_backend(BackendMaker* maker, const Tuning& tuning, int process_set,
                                              const std::vector<int>& ranks, Mesh& mesh) {
  if (maker != nullptr) {
    return maker->make(process_set, ranks, mesh);
  }
  return std::unique_ptr<Backend>(new CpuBackend(mesh, tuning));
}

void count_step(SetCounters& counters, std::span<PendingOp* const> ops, std::uint64_t known_at, std::uint64_t began) {
  SetCounters::Step step;
  const std::uint64_t now = ticks_now();
  step.move_ticks = ticks_between(began, now);
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;  // a stand-in, which this rank did not ask for
    }
    step.kind = op->what.kind;
    step.asked_at = std::max(step.asked_at, op->asked_at);
    ++step.operations;
    step.bytes += has_no_tensor(op->what.kind) ? 0 : input_bytes(op->what);
    step.negotiate_ticks += ticks_between(op->asked_at, known_at);
    step.wait_ticks += ticks_between(known_at, began);
  }
  if (step.asked_at != 0) {
    step.known_at = known_at;
    step.ended_at = now;
  }
  counters.add(step);
}

ProcessSets::ProcessSets(const Settings& settings, SetTable& table, Counters& counters)
    : settings_(settings), table_(table), counters_(counters) {
  std::vector<int> ranks(static_cast<std::size_t>(settings_.map.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  ProcessSet& all = sets_[0];
  all.executor.emplace(settings_.map, ranks, settings_.backend);
  all.counters = counters_.of(0);
  all.bits.emplace(0, settings_.map.size);
  all.quick = quick_path_of(0, settings_.mesh);
  table_.put(0, std::move(ranks), settings_.map, all.quick, all.counters);
}

// Returns null if there is only one rank, or too many nodes.
std::shared_ptr<QuickPath> ProcessSets::quick_path_of(int number, const Mesh* mesh) const {
  if (mesh == nullptr || mesh->map().size == 1 ||
      (settings_.maker != nullptr && !settings_.maker->keeps_quick_path())) {
    return nullptr;
  }
  const int nodes = mesh->map().node_count;
  if (nodes == 1) {
    return std::make_shared<NodeQuickPath>(mesh->shm(), settings_.tuning);
  }
  if (nodes > HostRounds::kMostNodes || settings_.calls == nullptr) {
    return nullptr;
  }
  return std::make_shared<HostQuickPath>(HostQuickPath::Place{number, mesh->map(), mesh->shm(), mesh->rounds()},
                                         settings_.tuning, *settings_.calls);
}

Result<void> ProcessSets::answer(const AnswerCall& call) const {
  const auto set = sets_.find(call.process_set);
  return set == sets_.end() || set->second.quick == nullptr ? Result<void>() : set->second.quick->answer(call.round);
}

Result<ProcessSet*> ProcessSets::add(int number, const std::vector<int>& ranks, Timeline* timeline,
                                     Interrupt& interrupt) {
  const auto map = map_among(settings_.map, ranks);
  const Deadline deadline = Deadline::after(settings_.time_to_meet);
  ProcessSet set;
  if (ranks.size() == 1) {
    set.backend = std::make_unique<SoloBackend>();
  } else {
    SubsetStore store(*settings_.store, "set-" + std::to_string(number) + "/", ranks, interrupt);
    if (!map) {
      HVD_TRY(Mesh::stay_out(store, deadline));
    } else {
      MeshOptions options = settings_.mesh_options;
      options.has_control = false;
      options.in_job.ranks = ranks;
      for (const int rank : ranks) {
        options.in_job.nodes.push_back(settings_.map.node_of_rank[static_cast<std::size_t>(rank)]);
      }
      HVD_TRY_ASSIGN(set.mesh, Mesh::join(*map, store, options, settings_.log, deadline));
      HVD_TRY_ASSIGN(set.backend, make_backend(settings_.maker.get(), settings_.tuning, number, ranks, *set.mesh));
    }
  }
  if (map) {
    set.executor.emplace(*map, ranks, *set.backend);
    set.executor->trace_to(timeline);
    set.counters = counters_.of(number);
    set.bits.emplace(number, map->size);
  }
  set.quick = quick_path_of(number, set.mesh.get());
  table_.put(number, ranks, map, set.quick, set.counters);
  return &sets_.emplace(number, std::move(set)).first->second;
}

void ProcessSets::remove(int number) {
  if (const auto set = sets_.find(number); set != sets_.end() && set->second.quick != nullptr) {
    set->second.quick->retire();
  }
  table_.remove(number);
  sets_.erase(number);
  counters_.remove(number);
}

}  // namespace hvd
