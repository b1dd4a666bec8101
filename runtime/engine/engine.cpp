#include "runtime/engine/engine.h"

#include <numeric>
#include <system_error>
#include <thread>

#include <pthread.h>

#include "runtime/base/process_mark.h"
#include "runtime/base/thread.h"
#include "runtime/coordinate/solo_backend.h"
#include "runtime/engine/engine_core.h"
#include "runtime/engine/engine_turns.h"
#include "runtime/link/shm_segment.h"

namespace hvd {
namespace {

// Takes rank 0's tuning. Ranks that chose for themselves could choose differently, and wait for each other forever.
Result<Tuning> tuning_of_job(const Mesh& mesh, Log& log) {
  if (mesh.word().empty()) {
    return Tuning{};  // rank 0 has no table
  }
  const auto tuning = decode_tuning(mesh.word());
  if (!tuning.ok()) {
    return tuning.error().with_context("what rank 0 has chosen");
  }
  log.write(LogLevel::kInfo, "tuned by rank 0: " + text_of(tuning.value()));
  return tuning;
}

void pin(std::thread& thread, int core, Log& log) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(core), &cores);
  if (const int failed = ::pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores); failed != 0) {
    log.write(LogLevel::kWarning, "the engine's thread cannot run on core " + std::to_string(core) + ": " +
                                      std::generic_category().message(failed));
  }
}

}  // namespace

// Impl is the engine's core, and the threads that run it.
struct Engine::Impl {
  const ProcessMark process{};
  // The core is destroyed first: what still runs on a device wakes the engine through `turns`.
  std::unique_ptr<EngineTurns> turns;
  std::unique_ptr<EngineCore> core;
  std::thread thread;
};

Result<std::unique_ptr<Engine>> Engine::start(RankMap map, std::unique_ptr<Store> store, const EngineOptions& options,
                                              std::unique_ptr<Log> log, Deadline deadline) {
  EngineCore::Parts parts;
  parts.options = options;
  parts.log = std::move(log);
  if (parts.log == nullptr) {
    parts.log = std::make_unique<NullLog>();
  }
  if (map.size == 1) {
    map.node_of_rank = {0};
    parts.map = std::move(map);
    parts.backend = std::make_unique<SoloBackend>();
  } else {
    if (store == nullptr) {
      return Error(Code::kInvalid, "a job of " + std::to_string(map.size) + " ranks needs a store to meet at");
    }
    MeshOptions mesh_options = options.mesh;
    mesh_options.word = options.tuning == Tuning{} ? "" : encode(options.tuning);
    HVD_TRY_ASSIGN(parts.mesh, Mesh::join(std::move(map), *store, mesh_options, *parts.log, deadline));
    HVD_TRY_ASSIGN(parts.options.tuning, tuning_of_job(*parts.mesh, *parts.log));
    parts.map = parts.mesh->map();
    std::vector<int> all(static_cast<std::size_t>(parts.map.size));
    std::iota(all.begin(), all.end(), 0);
    HVD_TRY_ASSIGN(parts.backend,
                   make_backend(parts.options.backends.get(), parts.options.tuning, 0, all, *parts.mesh));
  }
  parts.store = std::move(store);
  auto impl = std::make_unique<Impl>();
  HVD_TRY_ASSIGN(impl->core, EngineCore::create(std::move(parts), [of = impl.get()] { of->turns->wake(); }));
  HVD_TRY_ASSIGN(impl->turns, EngineTurns::create(*impl->core));
  impl->thread = start_thread("hvd-engine", [of = impl->turns.get()] { of->run(); });
  if (options.thread_core) {
    pin(impl->thread, *options.thread_core, *impl->core->parts().log);
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  if (!impl_->process.is_here()) {
    // A forked child has no engine thread to join. Closing in order (or removing files) would damage the parent's job,
    // so the copy is left to the child's exit.
    static_cast<void>(impl_.release());
    return;
  }
  leave();
}

void Engine::leave() {
  if (impl_->process.is_here() && impl_->thread.joinable()) {
    impl_->core->leave();
    impl_->turns->wake();
    impl_->thread.join();
    impl_->core->close_devices();
  }
}

OpRef Engine::get_op() {
  return impl_->core->queue().get_op();
}

Result<void> Engine::submit(std::span<OpRef> ops, Caller caller) {
  // Check this before any lock: the thread that held the lock when the process was forked does not exist here.
  if (!impl_->process.is_here()) {
    return Error(Code::kNotInitialized,
                 "this process was forked from a rank of a job and is no rank of it; "
                 "use the job from the process that joined it");
  }
  HVD_TRY(impl_->core->submit(ops));
  rouse(caller);
  return {};
}

void Engine::rouse(Caller caller) {
  if (caller == Caller::kGoesOn) {
    impl_->turns->rouse();
  } else if (caller == Caller::kWaitsSoon) {
    impl_->core->queue().rouse_later();
  }
}

bool Engine::try_quick(const SetPlace& set, int process_set, const QuickOp& op) {
  return impl_->core->try_quick(set, process_set, op);
}

void Engine::wait(const Completion& completion, const std::optional<Deadline>& until) {
  impl_->turns->wait(completion, until);
}

const SetTable& Engine::sets() const {
  return impl_->core->sets();
}

const Counters& Engine::counters() const {
  return impl_->core->counters();
}

Timeline* Engine::timeline() {
  return impl_->core->timeline();
}

const BufferTable& Engine::buffers() const {
  return impl_->core->buffers();
}

bool Engine::has_changed() const {
  const auto& store = impl_->core->parts().store;
  return store != nullptr && store->has_changed();
}

bool Engine::is_growing() const {
  const auto& store = impl_->core->parts().store;
  return store != nullptr && store->is_growing();
}

int Engine::node_cores() const {
  const EngineCore::Parts& parts = impl_->core->parts();
  const bool is_of_job = parts.mesh != nullptr && parts.map.node_count == 1 && parts.mesh->shm() != nullptr;
  return is_of_job ? parts.mesh->shm()->core_count() : 0;
}

const RankMap& Engine::map() const {
  return impl_->core->parts().map;
}

}  // namespace hvd
