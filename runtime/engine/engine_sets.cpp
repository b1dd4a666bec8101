// Process sets: how the engine makes and ends them. All ranks do it at the same place of the order that the coordinator
// decides, so that they agree on which there are. See engine_impl.h.
#include "runtime/backend/cpu_backend.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/solo_backend.h"
#include "runtime/rendezvous/subset_store.h"

namespace hvd {

Result<void> Engine::Impl::change_sets(const Response& response, const PendingOp& op) {
  const std::vector<std::int32_t>& numbers = op.what.set_numbers;
  if (response.kind == OpKind::kSetAdd) {
    return add_set(response.answer, numbers);
  }
  set_table_.remove(numbers.front());
  sets_.erase(numbers.front());
  return {};
}

// Blocks until all its ranks have met, or one is known to be lost; nothing else can be done meanwhile, since what comes
// next in the order may be of this set.
Result<void> Engine::Impl::add_set(int number, const std::vector<int>& ranks) {
  const auto map = map_among(parts_.map, ranks);
  const Deadline deadline = Deadline::after(parts_.options.set_timeout);
  ProcessSet set;
  if (ranks.size() == 1) {
    set.backend = std::make_unique<SoloBackend>();
  } else {
    SubsetStore store(*parts_.store, "set-" + std::to_string(number) + "/", ranks);
    if (!map) {
      HVD_TRY(Mesh::stay_out(store, deadline));
    } else {
      MeshOptions options = parts_.options.mesh;
      options.has_control = false;
      HVD_TRY_ASSIGN(set.mesh, Mesh::join(*map, store, options, *parts_.log, deadline));
      set.backend = std::make_unique<CpuBackend>(*set.mesh);
    }
  }
  if (map) {
    set.executor.emplace(*map, ranks, *set.backend);
  }
  sets_.emplace(number, std::move(set));
  set_table_.put(number, ranks, map);
  return {};
}

}  // namespace hvd
