// Contains the handlers that XLA calls, and their registration. They only translate: a frame becomes operations of
// libhvd, and their end completes a future.
//
// A handler must not block, because XLA has few threads, and each rank may come to the calls in another order. But
// waking two threads takes longer than a small operation does. So a handler first waits for a bounded time, during
// which it runs libhvd's engine itself, and then leaves the rest to a thread of the completion pool. A future is never
// set on libhvd's thread, because XLA would go on with the program there.
//
// A call without operands and attributes does nothing. It only makes a program larger. XLA on CPUs runs a small program
// (up to 8 steps, or steps with tensors of up to 512 bytes only) one step after another, and waits for each future
// before the next step. Ranks with different orders would then wait for each other for ever. So horovod.jax puts such
// empty calls beside the collectives. In TensorFlow's programs a last operand of each collective makes the order the
// same on all ranks instead.
//
// On GPUs a handler runs on the thread that launches the program, in the program's order, which is the same on all
// ranks, and XLA takes a call for done when it returns. So it waits there: until the operation is done on the device,
// or, with HOROVOD_ENABLE_ASYNC_COMPLETION=1, until it has been launched behind what the program's stream has.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/front/completion_pool.h"
#include "runtime/front/step_watch.h"
#include "runtime/front/xla/call.h"
#include "runtime/front/xla/ffi_abi.h"

namespace hvd::xla {
namespace {

// A handler does not wait for calls with more bytes than this, because XLA's threads have other work.
constexpr std::int64_t kWaitedBytes = std::int64_t{4} << 20U;
// A handler waits this long for a small call, at first and at most, and a third longer for each MiB. With a millisecond
// or more it sleeps in between; on a busy machine this lets the other ranks arrive sooner than polling. A wait in vain
// halves the time, but not below the time of a small operation when the ranks come together: with less, no wait would
// ever succeed again. A wait that succeeds restores the maximum.
constexpr std::int64_t kMostMicroseconds = 2000;
constexpr std::int64_t kLeastMicroseconds = 100;

std::atomic<std::int64_t> patience_us = kMostMicroseconds;

int code_of(hvd_status status) {
  switch (status) {
    case HVD_INVALID:
      return kInvalidArgument;
    case HVD_MISMATCH:
    case HVD_NOT_INITIALIZED:
      return kFailedPrecondition;
    case HVD_CANCELLED:
      return kCancelled;
    case HVD_LOST_PEER:
      return kAborted;
    default:
      return kInternal;
  }
}

// The status in the text tells Python which exception to raise.
Failure failure_of(hvd_status status, const std::string& text) {
  return {code_of(status), "[hvd " + std::to_string(status) + "] " + text};
}

XlaError* make_error(const Api& api, const Failure& failure) {
  auto args = arguments<ErrorCreate>();
  args.message = failure.text.c_str();
  args.code = failure.code;
  return api.error_create(&args);
}

void destroy(const Api& api, XlaError* error) {
  if (error != nullptr) {
    auto args = arguments<ErrorDestroy>();
    args.error = error;
    api.error_destroy(&args);
  }
}

// Turns queues calls of this process that have the same name. A program may come to a call while an earlier one of that
// name has not ended: where jax.checkpoint computes it again, or in the next run of the program. Libhvd refuses two at
// once, so here the later call waits its turn, as it does on the other ranks. Thread: any.
class Turns {
 public:
  // Never destroyed, because the pool's threads use it until the process ends.
  static Turns& all() {
    static auto* const turns = new Turns;
    return *turns;
  }
  // True if no other device of this process has made calls of this name.
  bool is_of_one_device(const std::string& name, std::int32_t device) {
    const std::lock_guard lock(mu_);
    return devices_.emplace(name, device).first->second == device;
  }
  // Returns a place in the queue of this name, and whether its turn has come.
  std::pair<std::size_t, bool> enter(const std::string& name) {
    const std::lock_guard lock(mu_);
    Row& row = rows_[name];
    const std::size_t number = row.entered++;
    return {number, row.left == number};
  }
  // Blocks until its turn has come. All calls before it end by themselves.
  void await(const std::string& name, std::size_t number) {
    std::unique_lock lock(mu_);
    const Row& row = rows_[name];  // the row exists while any call is in it
    changed_.wait(lock, [&] { return row.left == number; });
  }
  void leave(const std::string& name) {
    const std::lock_guard lock(mu_);
    const auto row = rows_.find(name);
    if (++row->second.left == row->second.entered) {
      rows_.erase(row);
    }
    changed_.notify_all();
  }

 private:
  struct Row {
    std::size_t entered = 0;
    std::size_t left = 0;
  };
  std::mutex mu_;
  std::condition_variable changed_;
  // guarded by mu_
  std::map<std::string, Row> rows_;
  std::map<std::string, std::int32_t> devices_;  // by name, never removed; programs have a limited number of names
};

// Returns the device of the process on which a call is made.
std::int32_t device_of(const Frame& frame, const Call& call) {
  if (frame.api->version.minor < 2) {
    return call.told_device;
  }
  auto args = arguments<DeviceOrdinalGet>();
  args.context = frame.context;
  XlaError* error = frame.api->device_ordinal_get(&args);
  destroy(*frame.api, error);
  return error == nullptr ? args.ordinal : call.told_device;
}

// Refuses a name that is called on several devices of the process. Each rank would make such a call several times, and
// nothing tells which of them belongs to which of another rank's.
std::optional<Failure> check_device(const Frame& frame, const Call& call) {
  if (Turns::all().is_of_one_device(call.tensors.front().name, device_of(frame, call))) {
    return std::nullopt;
  }
  return Failure{kUnimplemented,
                 "'" + call.tensors.front().name +
                     "' is called on several devices of this process (by pmap, shard_map or a sharded jit); a rank "
                     "has one device here: run more ranks instead, and reduce over the devices of one by JAX"};
}

// InStep is one call's part in a run of a program, for the watch over runs that have failed (front/step_watch.h).
class InStep {
 public:
  explicit InStep(const Frame& frame) : run_(run_of(frame)) {
    if (run_) {
      watch().begin(*run_);
    }
  }
  ~InStep() { end(std::nullopt); }
  InStep(InStep&& other) noexcept : run_(std::exchange(other.run_, std::nullopt)) {}
  InStep& operator=(InStep&&) = delete;
  InStep(const InStep&) = delete;
  InStep& operator=(const InStep&) = delete;

  // The call has ended, with this failure.
  void end(const std::optional<Failure>& failure) {
    if (run_) {
      watch().end(*run_, failure && (failure->code == kInvalidArgument || failure->code == kFailedPrecondition));
      run_.reset();
    }
  }

 private:
  static front::StepWatch& watch() { return front::watch_of_steps(front::StepWatch::Numbers::kUnique); }
  // nullopt: runs are not numbered here. Older XLA does not know numbers. TensorFlow gives all runs number 0, but needs
  // no watch: its programs have one order of collectives, so a run that has failed has no others in progress.
  static std::optional<std::int64_t> run_of(const Frame& frame) {
    if (frame.api->version.minor < 2) {
      return std::nullopt;
    }
    auto args = arguments<RunIdGet>();
    args.context = frame.context;
    XlaError* error = frame.api->run_id_get(&args);
    destroy(*frame.api, error);
    return error == nullptr && args.run_id != 0 ? std::optional(args.run_id) : std::nullopt;
  }

  std::optional<std::int64_t> run_;  // nullopt: not watched, or no longer
};

// Turn is one call's place in that queue, until it ends.
class Turn {
 public:
  explicit Turn(const Call& call)
      : name_(std::to_string(call.process_set) + "/" + call.tensors.front().name), place_(Turns::all().enter(name_)) {}
  ~Turn() { end(); }
  Turn(Turn&& other) noexcept : name_(std::exchange(other.name_, {})), place_(other.place_) {}
  Turn& operator=(Turn&&) = delete;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  [[nodiscard]] bool has_come() const { return place_.second; }
  void await() const { Turns::all().await(name_, place_.first); }
  void end() {
    if (!name_.empty()) {
      Turns::all().leave(name_);
      name_.clear();
    }
  }

 private:
  std::string name_;  // empty once ended
  std::pair<std::size_t, bool> place_;
};

// Operations holds libhvd's operations of one call, until they have ended.
class Operations {
 public:
  struct Fetch {
    void* to = nullptr;
    std::int64_t size_bytes = 0;
  };

  // Starts them. After a failure some may have been started; these must be finished too.
  void start(const Call& call) {
    const std::size_t count = call.tensors.size();
    handles_.assign(count, 0);
    stream_ = call.stream;
    std::vector<hvd_op> ops(count);
    std::vector<const hvd_op*> pointers(count);
    for (std::size_t i = 0; i < count; ++i) {
      ops[i] = call.op_of(call.tensors[i]);
      pointers[i] = &ops[i];
      if (call.has_fetched_results()) {
        fetches_.push_back({call.tensors[i].result, call.tensors[i].result_bytes});
      }
    }
    const auto number = static_cast<std::int32_t>(count);
    const bool is_group = count > 1 && call.kind != HVD_BROADCAST && call.kind != HVD_ALLTOALL;
    const bool waits = call.bytes <= kWaitedBytes;
    note(is_group ? hvd_enqueue_group(nullptr, pointers.data(), number, handles_.data())
                  : hvd_enqueue_many(nullptr, pointers.data(), number, waits ? HVD_WAITS_NEXT : HVD_GOES_ON,
                                     handles_.data()));
    std::erase(handles_, 0);
    if (failure_ && is_group) {
      handles_.clear();  // nothing of it was started
    }
  }

  // Waits for the bounded time, and returns whether all have ended.
  bool end_soon(std::int64_t bytes) {
    std::int32_t done = handles_.empty() ? 1 : 0;
    if (done == 0 && bytes <= kWaitedBytes) {
      const std::int64_t patience = patience_us.load(std::memory_order_relaxed);
      const std::int64_t limit = patience + patience * (bytes >> 10U) / 3072;
      note(hvd_wait_some(nullptr, handles_.data(), static_cast<std::int32_t>(handles_.size()), limit, &done));
      const std::int64_t next = done != 0 ? kMostMicroseconds : std::max(patience / 2, kLeastMicroseconds);
      patience_us.store(next, std::memory_order_relaxed);
    }
    return done != 0;
  }

  // Arranges that `callback` is called when all have ended. False: it will not be called.
  bool tell(hvd_callback callback, void* arg) {
    return hvd_on_all_done(nullptr, handles_.data(), static_cast<std::int32_t>(handles_.size()), callback, arg) ==
           HVD_OK;
  }

  // Records a status that libhvd returns; the first failure is kept.
  void note(hvd_status status) {
    if (status != HVD_OK && !failure_) {
      failure_ = failure_of(status, hvd_last_error());
    }
  }
  void note(hvd_status status, const char* text) {
    if (status != HVD_OK && !failure_) {
      failure_ = failure_of(status, text);
    }
  }

  // Waits for those that have not ended, copies the results, and releases all. Returns the failure, if there was one.
  const std::optional<Failure>& finish(bool is_known_to_be_well) {
    for (std::size_t i = 0; i < fetches_.size() && !failure_; ++i) {
      note(hvd_wait(nullptr, handles_[i]));
      if (failure_) {
        break;
      }
      const hvd_status fetched = hvd_fetch(nullptr, handles_[i], fetches_[i].to, fetches_[i].size_bytes, stream_);
      if (fetched == HVD_INVALID) {
        failure_ =
            failure_of(HVD_INVALID, std::string("under jit all ranks must bring equal shapes, and the first dimension "
                                                "must be divisible by the number of ranks: ") +
                                        hvd_last_error());
      }
      note(fetched);
    }
    const hvd_status finished = hvd_finish(nullptr, handles_.data(), static_cast<std::int32_t>(handles_.size()));
    if (!is_known_to_be_well || !fetches_.empty()) {
      note(finished);  // otherwise they are known to have succeeded, even if the job has failed since
    }
    return failure_;
  }

 private:
  std::vector<std::int64_t> handles_;
  std::vector<Fetch> fetches_;
  void* stream_ = nullptr;  // to which results are copied
  std::optional<Failure> failure_;
};

// Completes a call's future.
void settle(const Api& api, Future* future, const std::optional<Failure>& failure) {
  XlaError* error = nullptr;
  if (failure) {
    auto args = arguments<FutureSetError>();
    args.future = future;
    args.error = make_error(api, *failure);
    error = api.future_set_error(&args);
  } else {
    auto args = arguments<FutureSetAvailable>();
    args.future = future;
    error = api.future_set_available(&args);
  }
  destroy(api, error);
}

// Ending completes a call that has been started and for which XLA has a future.
class Ending final : public front::Job {
 public:
  Ending(const Api& api, Future* future, Operations operations, Turn turn, InStep step)
      : api_(api),
        future_(future),
        operations_(std::move(operations)),
        turn_(std::move(turn)),
        step_(std::move(step)) {}

  Operations& operations() { return operations_; }

  // The callback that libhvd calls, on one of its threads.
  static void on_done(void* arg, hvd_status status, const char* error) noexcept {
    std::unique_ptr<Ending> ending(static_cast<Ending*>(arg));
    ending->is_well_ = status == HVD_OK;
    try {
      ending->operations_.note(status, error);
    } catch (const std::bad_alloc&) {
      ending->is_well_ = false;  // hvd_finish will return the failure again
    }
    front::CompletionPool::shared().post(std::move(ending));
  }

  void run() noexcept override {
    const auto& failure = operations_.finish(is_well_);
    turn_.end();  // before settle(), which may continue the program in this thread
    step_.end(failure);
    settle(api_, future_, failure);
  }

 private:
  const Api& api_;
  Future* const future_;
  Operations operations_;
  Turn turn_;
  InStep step_;
  bool is_well_ = false;
};

// Late does a whole call when its turn has come.
class Late final : public front::Job {
 public:
  Late(const Api& api, Future* future, Call call, Turn turn, InStep step)
      : api_(api), future_(future), call_(std::move(call)), turn_(std::move(turn)), step_(std::move(step)) {}

  void run() noexcept override {
    turn_.await();
    Operations operations;
    operations.start(call_);
    const auto& failure = operations.finish(false);
    turn_.end();
    step_.end(failure);
    settle(api_, future_, failure);
  }

 private:
  const Api& api_;
  Future* const future_;
  const Call call_;
  Turn turn_;
  InStep step_;
};

// At registration, XLA asks which version we use. The answer is the lower of its own and the newest that we know.
void answer(const Frame& frame, Metadata& metadata) {
  const bool is_known = frame.api != nullptr && frame.api->version.major == kMajor;
  const int theirs = is_known ? frame.api->version.minor : kOldestMinor;
  metadata.version.major = kMajor;
  metadata.version.minor = std::clamp(theirs, kOldestMinor, kNewestMinor);
  metadata.traits = 0;
  if (metadata.version.minor >= 2) {
    metadata.state_type = 0;
  }
}

// Returns the stream of a program on a GPU.
std::optional<Failure> find_stream(const Frame& frame, Call& call) {
  auto args = arguments<StreamGet>();
  args.context = frame.context;
  if (XlaError* error = frame.api->stream_get(&args); error != nullptr) {
    auto message = arguments<ErrorGetMessage>();
    message.error = error;
    frame.api->error_get_message(&message);
    Failure failure{kInternal, std::string("XLA gives no stream of the program: ") + message.message};
    destroy(*frame.api, error);
    return failure;
  }
  call.device = device_of(frame, call);
  call.stream = args.stream;
  return std::nullopt;
}

// A call on a GPU, from its beginning to its end.
XlaError* run_on_device(const Api& api, const Call& call, Turn turn, InStep step) {
  turn.await();
  Operations operations;
  operations.start(call);
  const auto& failure = operations.finish(false);
  turn.end();
  step.end(failure);
  return failure ? make_error(api, *failure) : nullptr;
}

enum class Where : std::uint8_t { kHost, kDevice };

XlaError* handle(Frame& frame, Where where) {
  for (Extension* extension = frame.extension; extension != nullptr; extension = extension->next) {
    if (extension->type == kMetadataExtension) {
      answer(frame, *reinterpret_cast<MetadataExtension*>(extension)->metadata);
      return nullptr;
    }
  }
  const Api& api = *frame.api;
  if (frame.stage != kExecuteStage) {
    return nullptr;
  }
  if (frame.arguments.count == 0 && frame.attributes.count == 0) {
    return nullptr;
  }
  Call call;
  if (const auto failure = read_call(frame, call)) {
    return make_error(api, *failure);
  }
  if (const auto failure = check_device(frame, call)) {
    return make_error(api, *failure);
  }
  if (where == Where::kDevice) {
    if (const auto failure = find_stream(frame, call)) {
      return make_error(api, *failure);
    }
    return run_on_device(api, call, Turn(call), InStep(frame));
  }
  InStep step(frame);
  Turn turn(call);
  Operations operations;
  if (turn.has_come()) {
    operations.start(call);
    if (operations.end_soon(call.bytes)) {
      const auto& failure = operations.finish(false);
      step.end(failure);
      return failure ? make_error(api, *failure) : nullptr;
    }
  }
  auto created = arguments<FutureCreate>();
  if (XlaError* error = api.future_create(&created); error != nullptr) {
    operations.finish(false);  // blocks, because XLA must not free the memory before
    return error;
  }
  Future* const future = created.future;
  if (!turn.has_come()) {
    auto late = std::make_unique<Late>(api, future, std::move(call), std::move(turn), std::move(step));
    frame.future = future;
    front::CompletionPool::shared().post(std::move(late));
    return nullptr;
  }
  Ending* const ending =
      std::make_unique<Ending>(api, future, std::move(operations), std::move(turn), std::move(step)).release();
  frame.future = future;
  if (!ending->operations().tell(&Ending::on_done, ending)) {
    front::CompletionPool::shared().post(std::unique_ptr<front::Job>(ending));  // its run() waits for the operations
  }
  return nullptr;
}

XlaError* fenced(Frame* frame, Where where) noexcept {
  try {
    return handle(*frame, where);
  } catch (const std::exception& e) {
    return make_error(*frame->api, {kInternal, e.what()});
  }
}

}  // namespace
}  // namespace hvd::xla

extern "C" {

// The handler of all collectives (call.h lists its attributes), for platform "cpu" of jax.ffi.register_ffi_target.
__attribute__((visibility("default"))) hvd::xla::XlaError* hvd_xla_collective(hvd::xla::Frame* frame) {
  return hvd::xla::fenced(frame, hvd::xla::Where::kHost);
}

// The same for programs on GPUs, for platform "CUDA".
__attribute__((visibility("default"))) hvd::xla::XlaError* hvd_xla_collective_on_device(hvd::xla::Frame* frame) {
  return hvd::xla::fenced(frame, hvd::xla::Where::kDevice);
}

// Registers it as "hvd_xla_collective" in the copy of XLA that `api` belongs to, for programs that do not use JAX.
// TensorFlow exports `api` as xla::ffi::GetXlaFfiApi(). Returns 0, or 1 with the cause in `text`.
__attribute__((visibility("default"))) std::int32_t hvd_xla_register(const hvd::xla::Api* api, char* text,
                                                                     std::int64_t capacity) {
  using namespace hvd::xla;
  auto args = arguments<HandlerRegister>();
  args.name = {"hvd_xla_collective", 18};
  args.platform = {"Host", 4};
  args.execute = &hvd_xla_collective;
  XlaError* error = api->handler_register(&args);
  if (error == nullptr) {
    return 0;
  }
  auto message = arguments<ErrorGetMessage>();
  message.error = error;
  api->error_get_message(&message);
  if (capacity > 0) {
    text[std::string(message.message).copy(text, static_cast<std::size_t>(capacity) - 1)] = '\0';
  }
  destroy(*api, error);
  return 1;
}

}  // extern "C"
