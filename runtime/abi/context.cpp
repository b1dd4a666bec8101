#include "runtime/abi/context.h"

#include <cstddef>
#include <cstring>

#include "runtime/abi/op_checks.h"
#include "runtime/core/op_kind.h"
#include "runtime/core/shape.h"
#include "runtime/engine/buffer_table.h"
#include "runtime/rendezvous/hmac.h"

namespace {

constexpr const char* kForkedText =
    "this process was forked from a rank of a job and is no rank of it; use the job from the process that joined it";

void give_number_back(const hvd::SetTable& sets, const hvd::Submission& what) {
  const std::uint64_t number = hvd::noname_number(what.kind, what.name);
  const auto set = number == 0 ? nullptr : sets.find(what.process_set);
  if (set != nullptr) {
    set->give_back_noname(what.kind, number);
  }
}

}  // namespace

hvd_ctx::hvd_ctx(std::unique_ptr<hvd::Engine> engine, Joined joined)
    : map_(joined.place ? *joined.place : engine->map()),
      is_by_mpi_(joined.is_by_mpi),
      object_key_(std::move(joined.object_key)),
      engine_(std::move(engine)) {}

std::string hvd_ctx::mac_of(hvd::Bytes bytes) const {
  return hvd::hmac_sha256(hvd::as_bytes(object_key_), bytes);
}

hvd_ctx::~hvd_ctx() = default;

bool hvd_ctx::is_forked() const {
  return !process_.is_here();
}

hvd::Result<std::shared_ptr<hvd::Engine>> hvd_ctx::engine() {
  // Check this before any lock: the thread that held the lock when the process was forked does not exist here.
  if (is_forked()) {
    return hvd::Error(hvd::Code::kNotInitialized, kForkedText);
  }
  const std::lock_guard lock(mu_);
  if (engine_ == nullptr) {
    return hvd::Error(hvd::Code::kNotInitialized, "this context has been shut down");
  }
  return engine_;
}

hvd::Result<std::int64_t> hvd_ctx::enqueue(const hvd_op& op) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  hvd::OpRef alone = engine_now->get_op();
  HVD_TRY(hvd::submission_from(op, engine_now->sets(), alone->what));
  std::int64_t handle = 0;
  HVD_TRY(start(*engine_now, std::span(&alone, 1), hvd::Engine::Caller::kGoesOn, &handle));
  return handle;
}

hvd::Result<void> hvd_ctx::execute(const hvd_op& op, std::int64_t* handle) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  const auto set = engine_now->sets().find(op.process_set);
  auto quick = set != nullptr && set->quick != nullptr ? hvd::quick_op_from(op, *set) : std::nullopt;
  if (quick) {
    if (quick->name.empty()) {
      quick->noname = set->next_noname(quick->kind);
    }
    if (engine_now->try_quick(*set, op.process_set, *quick)) {
      if (handle != nullptr) {
        *handle = operations_.keep(operations_.make_done(*quick));
      }
      return {};
    }
  }
  hvd::OpRef alone = engine_now->get_op();
  HVD_TRY(hvd::submission_from(op, engine_now->sets(), alone->what));
  const hvd::OpKind kind = alone->what.kind;
  if (handle == nullptr && (hvd::is_cut_by_rank(kind) || kind == hvd::OpKind::kJoin)) {
    return hvd::Error(hvd::Code::kInvalid, std::string("hvd_execute: handle is NULL, but the result of a ") +
                                               hvd::name_of(kind) + " is memory of the runtime's");
  }
  if (quick && quick->noname != 0) {
    alone->what.name = hvd::noname_of(quick->kind, quick->noname);  // it has its number already
  }
  std::int64_t started = 0;
  HVD_TRY(start(*engine_now, std::span(&alone, 1), hvd::Engine::Caller::kWaitsNext, &started));
  if (handle != nullptr) {
    *handle = started;
  }
  HVD_TRY_ASSIGN(const auto operation, find(started));
  const auto outcome = finish(*operation);
  if (handle == nullptr) {
    HVD_TRY(release(started));
  }
  return outcome;
}

hvd::Result<void> hvd_ctx::enqueue_group(std::span<const hvd_op* const> ops, hvd::Engine::Caller caller,
                                         std::int64_t* handles) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  std::vector<hvd::OpRef> group;
  {
    const std::lock_guard lock(mu_);
    group.swap(spare_group_);
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    group.push_back(engine_now->get_op());
  }
  auto started = hvd::submissions_from(ops, engine_now->sets(), group);
  if (started.ok()) {
    started = start(*engine_now, group, caller, handles);
  }
  group.clear();  // before the engine can go away
  const std::lock_guard lock(mu_);
  spare_group_.swap(group);
  return started;
}

hvd::Result<void> hvd_ctx::enqueue_many(std::span<const hvd_op* const> ops, hvd::Engine::Caller caller,
                                        std::int64_t* handles) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  const auto start_one = [&](const hvd_op* op, std::int64_t* handle) -> hvd::Result<void> {
    if (op == nullptr) {
      return hvd::Error(hvd::Code::kInvalid, "ops[" + std::to_string(handle - handles) + "] is NULL");
    }
    hvd::OpRef alone = engine_now->get_op();
    HVD_TRY(hvd::submission_from(*op, engine_now->sets(), alone->what));
    return start(*engine_now, std::span(&alone, 1), hvd::Engine::Caller::kWaitsNext, handle);
  };
  hvd::Result<void> started;
  for (std::size_t i = 0; i < ops.size() && started.ok(); ++i) {
    started = start_one(ops[i], handles + i);
  }
  // Wake the engine once for all operations; woken by the first one, it would ask the other ranks for each separately.
  // A caller that was refused an operation may not wait for the earlier ones, so the engine must not rely on that.
  engine_now->rouse(started.ok() ? caller : hvd::Engine::Caller::kGoesOn);
  return started;
}

template <typename T, typename Fill>
hvd::Result<T> hvd_ctx::change(const Fill& fill) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  hvd::OpRef op = engine_now->get_op();
  HVD_TRY(fill(op->what));
  const auto completion = op->completion;
  HVD_TRY(engine_now->submit(std::span(&op, 1), hvd::Engine::Caller::kWaitsNext));
  engine_now->wait(*completion);
  HVD_TRY(completion->wait());
  T answer{};
  if (const auto& output = completion->output()) {
    std::memcpy(&answer, output->data.get(), sizeof answer);
  }
  return answer;
}

hvd::Result<std::int32_t> hvd_ctx::add_process_set(const std::int32_t* ranks, std::int32_t count, bool by_members) {
  return change<std::int32_t>([&](hvd::Submission& what) -> hvd::Result<void> {
    HVD_TRY(hvd::set_of_ranks(ranks, count, map_.size, what));
    return by_members ? hvd::ask_by_members(map_.rank, what) : hvd::Result<void>();
  });
}

hvd::Result<void> hvd_ctx::remove_process_set(std::int32_t number) {
  HVD_TRY(ranks_of_process_set(number));
  HVD_TRY(change<std::int32_t>([&](hvd::Submission& what) -> hvd::Result<void> {
    what.kind = hvd::OpKind::kSetRemove;
    what.name = "removal of process set " + std::to_string(number);
    what.numbers = {number};
    return {};
  }));
  return {};
}

hvd::Result<void*> hvd_ctx::create_buffer(std::int64_t size_bytes) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40U;
  if (size_bytes <= 0 || size_bytes > kMaxBytes) {
    return hvd::Error(hvd::Code::kInvalid, "a buffer of " + std::to_string(size_bytes) + " bytes, expected 1 to " +
                                               std::to_string(kMaxBytes));
  }
  return change<void*>([&](hvd::Submission& what) -> hvd::Result<void> {
    what.kind = hvd::OpKind::kBufferAdd;
    what.name = "buffer";
    what.dtype = hvd::Dtype::kUint8;
    what.shape = {size_bytes};
    return {};
  });
}

hvd::Result<void> hvd_ctx::destroy_buffer(const void* data) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  const auto number = engine_now->buffers().number_of(data);
  if (!number) {
    return hvd::Error(hvd::Code::kNotFound, "there is no buffer at this address");
  }
  HVD_TRY(change<std::int32_t>([&](hvd::Submission& what) -> hvd::Result<void> {
    what.kind = hvd::OpKind::kBufferRemove;
    what.name = "removal of buffer " + std::to_string(*number);
    what.numbers = {*number};
    return {};
  }));
  return {};
}

hvd::Result<std::vector<int>> hvd_ctx::process_sets() {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  return engine_now->sets().numbers();
}

hvd::Result<std::vector<int>> hvd_ctx::ranks_of_process_set(std::int32_t number) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  const auto set = engine_now->sets().find(number);
  if (set == nullptr) {
    return hvd::Error(hvd::Code::kNotFound, "there is no process set " + std::to_string(number));
  }
  return set->ranks;
}

hvd::Result<void> hvd_ctx::start(hvd::Engine& engine, std::span<hvd::OpRef> ops, hvd::Engine::Caller caller,
                                 std::int64_t* handles) {
  // A group takes one number, however many tensors it has: where ranks disagree about that, all refuse the group, and
  // their next numbers are the same still.
  std::string of_group;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    hvd::Submission& what = ops[i]->what;
    if (!what.name.empty()) {
      continue;
    }
    if (!of_group.empty()) {
      what.name = of_group + "_" + std::to_string(i);
      continue;
    }
    const auto set = engine.sets().find(what.process_set);
    if (set == nullptr) {
      return hvd::Error(hvd::Code::kNotFound, "this process set has just been removed");
    }
    what.name = hvd::noname_of(what.kind, set->next_noname(what.kind));
    of_group = what.name;
  }
  // Make the handles before the submission, since the operations belong to the engine after it; no other thread knows
  // the handles yet.
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const hvd::Submission& what = ops[i]->what;
    auto operation = operations_.make();
    operation->completion = ops[i]->completion;
    operation->output = what.output;
    operation->size_bytes = what.output == nullptr ? 0 : hvd::size_bytes_of(what.shape, what.dtype).value_or(0);
    operation->set_shape(what.shape);
    operation->stream = what.stream;
    handles[i] = operations_.keep(std::move(operation));
  }
  auto submitted = engine.submit(ops, caller);
  if (!submitted.ok()) {
    for (std::size_t i = ops.size(); i > 0; --i) {
      operations_.forget(std::exchange(handles[i - 1], 0));
      if (ops[i - 1] != nullptr) {
        give_number_back(engine.sets(), ops[i - 1]->what);
      }
    }
  }
  return submitted;
}

hvd::Result<std::shared_ptr<const hvd::Operation>> hvd_ctx::find(std::int64_t handle) {
  if (is_forked()) {
    return hvd::Error(hvd::Code::kNotInitialized, kForkedText);
  }
  return operations_.find(handle);
}

void hvd_ctx::wait(const hvd::Operation& operation, const std::optional<hvd::Deadline>& until) {
  if (operation.completion->is_done()) {
    return;
  }
  std::shared_ptr<hvd::Engine> engine;
  {
    const std::lock_guard lock(mu_);
    engine = engine_;
  }
  if (engine != nullptr) {
    engine->wait(*operation.completion, until);
  } else if (until) {
    operation.completion->wait_until(*until);
  } else {
    static_cast<void>(operation.completion->wait());  // close() is about to finish it
  }
}

hvd::Result<void> hvd_ctx::finish(const hvd::Operation& operation) {
  wait(operation);
  HVD_TRY(operation.completion->wait());
  const auto& ticket = operation.completion->ticket();
  return ticket == nullptr ? hvd::Result<void>() : ticket->join(operation.stream);
}

hvd::Result<void> hvd_ctx::fetch(const hvd::Operation& operation, void* to, std::int64_t size_bytes, void* stream) {
  if (!operation.completion->is_done()) {
    return hvd::Error(hvd::Code::kInvalid, "hvd_fetch: the operation has not finished; call hvd_wait first");
  }
  HVD_TRY(operation.completion->wait());
  const auto& owned = operation.completion->output();
  if (!owned) {
    return hvd::Error(hvd::Code::kInvalid, "hvd_fetch: the operation's result is in its output already");
  }
  if (size_bytes < 0 || static_cast<std::size_t>(size_bytes) != owned->size_bytes) {
    return hvd::Error(hvd::Code::kInvalid, "hvd_fetch: size_bytes is " + std::to_string(size_bytes) +
                                               ", but the result has " + std::to_string(owned->size_bytes));
  }
  if (to == nullptr && size_bytes > 0) {
    return hvd::Error(hvd::Code::kInvalid, "hvd_fetch: to is NULL");
  }
  if (owned->device == nullptr) {
    if (size_bytes > 0) {
      std::memcpy(to, owned->data.get(), owned->size_bytes);
    }
    return {};
  }
  if (const auto& ticket = operation.completion->ticket(); ticket != nullptr) {
    HVD_TRY(ticket->join(stream));
  }
  return owned->device->copy_to(to, owned->size_bytes, stream);
}

hvd::Result<void> hvd_ctx::release(std::int64_t handle) {
  HVD_TRY_ASSIGN(const std::shared_ptr<const hvd::Operation> operation, find(handle));
  wait(*operation);
  operations_.forget(handle);
  return {};
}

hvd::Result<int> hvd_ctx::node_cores() {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  return engine_now->node_cores();
}

hvd::Result<bool> hvd_ctx::has_changed() {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  return engine_now->has_changed();
}

hvd::Result<bool> hvd_ctx::is_growing() {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  return engine_now->is_growing();
}

hvd::Result<void> hvd_ctx::read_counters(int process_set, hvd_counters& out) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  const auto values = engine_now->counters().read(process_set);
  if (!values) {
    return hvd::Error(hvd::Code::kNotFound,
                      "this rank is not a member of a process set " + std::to_string(process_set));
  }
  out.operations = values->operations;
  out.failures = values->failures;
  out.steps = values->steps;
  out.bytes = values->bytes;
  out.negotiate_s = values->negotiate_s;
  out.wait_s = values->wait_s;
  out.move_s = values->move_s;
  out.sleeps = engine_now->counters().sleeps();
  out.requests = values->requests;
  out.known = values->known;
  out.messages = engine_now->counters().messages();
  out.message_bytes = engine_now->counters().message_bytes();
  return {};
}

hvd::Result<void> hvd_ctx::start_timeline(const std::string& path, bool marks_cycles) {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  hvd::Timeline* timeline = engine_now->timeline();
  return timeline == nullptr ? hvd::Result<void>() : timeline->start(path, marks_cycles);
}

hvd::Result<void> hvd_ctx::stop_timeline() {
  HVD_TRY_ASSIGN(const auto engine_now, engine());
  if (hvd::Timeline* timeline = engine_now->timeline(); timeline != nullptr) {
    timeline->stop();
  }
  return {};
}

void hvd_ctx::close() {
  if (is_forked()) {
    return;
  }
  std::shared_ptr<hvd::Engine> leaving;
  {
    const std::lock_guard lock(mu_);
    leaving.swap(engine_);
  }
  if (leaving != nullptr) {
    leaving->leave();  // also ends the waits of threads in the engine, which still keep it
  }
}
