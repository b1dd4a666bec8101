#include "runtime/engine/engine.h"

#include <numeric>

#include "runtime/coordinate/solo_backend.h"
#include "runtime/engine/engine_impl.h"

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

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(RankMap map, std::unique_ptr<Store> store, const EngineOptions& options,
                                              std::unique_ptr<Log> log, Deadline deadline) {
  Impl::Parts parts;
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
    HVD_TRY_ASSIGN(parts.backend, Impl::make_backend(parts.options, 0, all, *parts.mesh));
  }
  parts.store = std::move(store);
  HVD_TRY_ASSIGN(std::unique_ptr<Impl> impl, Impl::create(std::move(parts)));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  if (impl_->is_forked()) {
    // A forked child has no engine thread to join. Closing in order (or removing files) would damage the parent's job,
    // so the copy is left to the child's exit.
    static_cast<void>(impl_.release());
  }
}

OpRef Engine::get_op() {
  return impl_->get_op();
}

Result<void> Engine::submit(std::span<OpRef> ops, Caller caller) {
  return impl_->submit(ops, caller);
}

void Engine::rouse(Caller caller) {
  impl_->rouse(caller);
}

bool Engine::try_quick(const SetPlace& set, int process_set, const QuickOp& op) {
  return impl_->try_quick(set, process_set, op);
}

void Engine::wait(const Completion& completion, const std::optional<Deadline>& until) {
  impl_->wait(completion, until);
}

void Engine::leave() {
  if (!impl_->is_forked()) {
    impl_->leave();
  }
}

const SetTable& Engine::sets() const {
  return impl_->sets();
}

const Counters& Engine::counters() const {
  return impl_->counters();
}

Timeline* Engine::timeline() {
  return impl_->timeline();
}

const BufferTable& Engine::buffers() const {
  return impl_->buffers();
}

bool Engine::has_changed() const {
  return impl_->has_changed();
}

bool Engine::is_growing() const {
  return impl_->is_growing();
}

int Engine::node_cores() const {
  return impl_->node_cores();
}

const RankMap& Engine::map() const {
  return impl_->map();
}

}  // namespace hvd
