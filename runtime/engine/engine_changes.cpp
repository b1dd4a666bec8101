// How the engine makes and ends process sets and shared buffers. All ranks do it at the same place of the order that
// the coordinator decides, so that they agree on which exist. See engine_impl.h.
#include <sys/mman.h>

#include <cstring>

#include "runtime/backend/cpu_backend.h"
#include "runtime/coordinate/solo_backend.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/rendezvous/subset_store.h"

namespace hvd {
namespace {

constexpr std::size_t kBufferUnit = 4096;  // a page

}  // namespace

Result<std::unique_ptr<Backend>> Engine::Impl::make_backend(const EngineOptions& options, int process_set,
                                                            const std::vector<int>& ranks, Mesh& mesh) {
  if (options.backends != nullptr) {
    return options.backends->make(process_set, ranks, mesh);
  }
  return std::unique_ptr<Backend>(new CpuBackend(mesh, options.tuning));
}

// Returns null if the ranks of the mesh are on several nodes, or if there is only one.
std::shared_ptr<QuickPath> Engine::Impl::quick_path_of(const Mesh* mesh) const {
  const auto& maker = parts_.options.backends;
  const bool is_possible = mesh != nullptr && mesh->map().node_count == 1 && mesh->shm() != nullptr &&
                           (maker == nullptr || maker->keeps_quick_path());
  return is_possible ? std::make_shared<QuickPath>(mesh->shm(), parts_.options.tuning) : nullptr;
}

bool Engine::Impl::try_quick(const SetPlace& set, int process_set, const QuickOp& op) {
  if (set.quick == nullptr || !queue_->enter_alone(process_set, op.name)) {
    return false;
  }
  const std::uint64_t began = is_traced() ? ticks_now() : 0;
  const bool is_done = set.quick->try_run(op);
  if (is_done && began != 0) {
    trace_quick(process_set, op, began);
  }
  if (is_done) {
    set.counters->add_quick(op.size_bytes);
  }
  queue_->leave_alone();
  return is_done;
}

Result<void> Engine::Impl::change(const Response& response, PendingOp& op) {
  const std::vector<std::int32_t>& numbers = op.what.numbers;
  switch (response.kind) {
    case OpKind::kSetAdd:
      return add_set(response.answer, numbers);
    case OpKind::kSetRemove:
      HVD_TRY(devices_->remove_set(numbers.front(), *this));
      set_table_.remove(numbers.front());
      sets_.erase(numbers.front());
      counters_.remove(numbers.front());
      return {};
    case OpKind::kBufferAdd:
      return add_buffer(op);
    default:
      remove_buffer(numbers.front());
      return {};
  }
}

// The result is the buffer's address. If this rank shares its node with no other, the buffer is ordinary memory.
Result<void> Engine::Impl::add_buffer(PendingOp& op) {
  SharedBuffer buffer;
  buffer.number = ++last_buffer_;
  buffer.size_bytes = static_cast<std::size_t>(op.what.shape.front());
  ShmSegment* shm = parts_.mesh == nullptr ? nullptr : parts_.mesh->shm().get();
  if (shm != nullptr && shm->arena_bytes() > 0) {
    if (!arena_map_) {
      arena_map_.emplace(shm->arena_bytes(), kBufferUnit);
    }
    const auto offset = arena_map_->allocate(buffer.size_bytes);
    if (!offset) {
      return Error(Code::kResource, "no " + std::to_string(buffer.size_bytes) + " bytes of addresses for a buffer");
    }
    HVD_TRY(shm->reserve(*offset, buffer.size_bytes));
    buffer.offset = static_cast<std::int64_t>(*offset);
    buffer.data = shm->arena(shm->local_rank()) + *offset;
  } else {
    // The memory is mapped, because it stays when the engine ends; see hvd_buffer_destroy.
    void* own = ::mmap(nullptr, buffer.size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) {
      return Error(Code::kResource, "out of memory: no " + std::to_string(buffer.size_bytes) + " bytes for a buffer");
    }
    buffer.data = static_cast<std::uint8_t*>(own);
  }
  HVD_TRY_ASSIGN(op.output, OwnedOutput::allocate(sizeof buffer.data, {}));
  std::memcpy(op.output->data.get(), &buffer.data, sizeof buffer.data);
  buffer_table_.put(std::move(buffer));
  return {};
}

void Engine::Impl::remove_buffer(std::int32_t number) {
  const auto buffer = buffer_table_.remove(number);
  if (buffer && buffer->offset < 0) {
    ::munmap(buffer->data, buffer->size_bytes);
  } else if (buffer) {
    const auto offset = static_cast<std::uint64_t>(buffer->offset);
    parts_.mesh->shm()->release(offset, buffer->size_bytes);
    arena_map_->release(offset);
  }
}

// Blocks until all ranks of the set have connected, or one is known to be lost. Nothing else can be done meanwhile,
// since the next step in the order may be of this set.
Result<void> Engine::Impl::add_set(int number, const std::vector<int>& ranks) {
  const auto map = map_among(parts_.map, ranks);
  const Deadline deadline = Deadline::after(parts_.options.set_timeout);
  ProcessSet set;
  if (ranks.size() == 1) {
    set.backend = std::make_unique<SoloBackend>();
  } else {
    SubsetStore store(*parts_.store, "set-" + std::to_string(number) + "/", ranks, *this);
    if (!map) {
      HVD_TRY(Mesh::stay_out(store, deadline));
    } else {
      MeshOptions options = parts_.options.mesh;
      options.has_control = false;
      HVD_TRY_ASSIGN(set.mesh, Mesh::join(*map, store, options, *parts_.log, deadline));
      HVD_TRY_ASSIGN(set.backend, make_backend(parts_.options, number, ranks, *set.mesh));
    }
  }
  if (map) {
    set.executor.emplace(*map, ranks, *set.backend);
    set.executor->trace_to(timeline_.get());
    set.counters = counters_.of(number);
    set.cache.emplace(map->size);
  }
  set_table_.put(number, ranks, map, quick_path_of(set.mesh.get()), set.counters);
  ProcessSet& made = sets_.emplace(number, std::move(set)).first->second;
  return devices_->add_set(number, map ? std::optional(host_of(made)) : std::nullopt, *this);
}

}  // namespace hvd
