// The handlers that XLA calls, and their registration. Nothing is decided here: a frame becomes operations of libhvd,
// and their end the end of a future.
//
// A handler must not block, as XLA has few threads and each rank may come to the calls in another order. But waking
// two threads takes longer than a small operation does. So it waits a moment by a bounded wait, which turns libhvd's
// engine, and hands the rest to a thread of the completion pool. Never is a future set on libhvd's thread: XLA goes on
// with the program there.
//
// A call without operands and attributes does nothing. XLA on CPUs runs what is small, up to 8 steps or steps with
// tensors of up to 512 bytes alone, one step after another, and waits for each future before the next: ranks with
// another order would wait for each other for ever. So the fronts put such calls beside the collectives, which make a
// program large.
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
#include "runtime/front/xla/call.h"
#include "runtime/front/xla/ffi_abi.h"

namespace hvd::xla {
namespace {

// More than so much is not waited for: XLA's threads have better to do.
constexpr std::int64_t kWaitedBytes = std::int64_t{4} << 20U;
// How long a handler waits for what is small, at first and at most, and a third as long again for each MiB. With a
// millisecond or more it sleeps in between, which on a busy machine brings the others here sooner than looking all the
// time. A wait in vain halves it, down to what a small operation takes when the ranks come together: below, no wait
// would ever succeed again. One that was not in vain makes it the most again.
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

// The status in the text tells Python which exception it stands for.
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

// The calls of this process that have not ended, by name. A program may come to a call while one of the same name has
// not ended: where jax.checkpoint computes it again, or in the next run of the program. Libhvd refuses that; here the
// call waits its turn, as it does on the other ranks. Thread: any.
class Turns {
 public:
  // Never destroyed, as the pool's threads use it.
  static Turns& all() {
    static auto* const turns = new Turns;
    return *turns;
  }
  // Whether no other device of this process has made calls of this name.
  bool is_of_one_device(const std::string& name, std::int32_t device) {
    const std::lock_guard lock(mu_);
    return devices_.emplace(name, device).first->second == device;
  }
  // A number in the row of this name, and whether its turn has come.
  std::pair<std::size_t, bool> enter(const std::string& name) {
    const std::lock_guard lock(mu_);
    Row& row = rows_[name];
    const std::size_t number = row.entered++;
    return {number, row.left == number};
  }
  // Blocks until its turn has come: all that were before end by themselves.
  void await(const std::string& name, std::size_t number) {
    std::unique_lock lock(mu_);
    const Row& row = rows_[name];  // it stays while somebody is in it
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
  std::map<std::string, std::int32_t> devices_;  // of each name ever, which are as many as programs have
};

// Which of the process's devices a call is made on; 0 where XLA does not say.
std::int32_t device_of(const Frame& frame) {
  if (frame.api->version.minor < 2) {
    return 0;
  }
  auto args = arguments<DeviceOrdinalGet>();
  args.context = frame.context;
  XlaError* error = frame.api->device_ordinal_get(&args);
  destroy(*frame.api, error);
  return error == nullptr ? args.ordinal : 0;
}

// A program that runs on several devices of a process makes each call several times, and nobody could tell which
// belongs to which of another rank's.
std::optional<Failure> check_device(const Frame& frame, const Call& call) {
  if (Turns::all().is_of_one_device(call.tensors.front().name, device_of(frame))) {
    return std::nullopt;
  }
  return Failure{kUnimplemented,
                 "'" + call.tensors.front().name +
                     "' is called on several devices of this process (by pmap, shard_map or a sharded jit); a rank "
                     "has one device here: run more ranks instead, and reduce over the devices of one by JAX"};
}

// One call's place there, until it ends.
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

// The operations of one call, until they have ended.
class Operations {
 public:
  struct Fetch {
    void* to = nullptr;
    std::int64_t size_bytes = 0;
  };

  // Starts them. After a failure some may be started, which must end like all.
  void start(const Call& call) {
    const std::size_t count = call.tensors.size();
    handles_.assign(count, 0);
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

  // Whether all have ended, within the moment that may be spent on it.
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

  // Has `callback` called when all have ended. False: it will not be.
  bool tell(hvd_callback callback, void* arg) {
    return hvd_on_all_done(nullptr, handles_.data(), static_cast<std::int32_t>(handles_.size()), callback, arg) ==
           HVD_OK;
  }

  // What libhvd says of their end; the first counts.
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

  // Waits for what has not ended, copies the results, and forgets all. What failed, if something did.
  const std::optional<Failure>& finish(bool is_known_to_be_well) {
    for (std::size_t i = 0; i < fetches_.size() && !failure_; ++i) {
      note(hvd_wait(nullptr, handles_[i]));
      if (failure_) {
        break;
      }
      const hvd_status fetched = hvd_fetch(nullptr, handles_[i], fetches_[i].to, fetches_[i].size_bytes, nullptr);
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
      note(finished);  // else they have ended well, whatever became of the job since
    }
    return failure_;
  }

 private:
  std::vector<std::int64_t> handles_;
  std::vector<Fetch> fetches_;
  std::optional<Failure> failure_;
};

// Tells XLA that a call has ended.
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

// Ends a call that has begun, and of which XLA has a future.
class Ending final : public front::Job {
 public:
  Ending(const Api& api, Future* future, Operations operations, Turn turn)
      : api_(api), future_(future), operations_(std::move(operations)), turn_(std::move(turn)) {}

  Operations& operations() { return operations_; }

  // Libhvd's callback.
  static void on_done(void* arg, hvd_status status, const char* error) noexcept {
    std::unique_ptr<Ending> ending(static_cast<Ending*>(arg));
    ending->is_well_ = status == HVD_OK;
    try {
      ending->operations_.note(status, error);
    } catch (const std::bad_alloc&) {
      ending->is_well_ = false;  // hvd_finish tells it again
    }
    front::CompletionPool::shared().post(std::move(ending));
  }

  void run() noexcept override {
    const auto& failure = operations_.finish(is_well_);
    turn_.end();  // before the program goes on, in this thread
    settle(api_, future_, failure);
  }

 private:
  const Api& api_;
  Future* const future_;
  Operations operations_;
  Turn turn_;
  bool is_well_ = false;
};

// Does a whole call when its turn has come.
class Late final : public front::Job {
 public:
  Late(const Api& api, Future* future, Call call, Turn turn)
      : api_(api), future_(future), call_(std::move(call)), turn_(std::move(turn)) {}

  void run() noexcept override {
    turn_.await();
    Operations operations;
    operations.start(call_);
    const auto& failure = operations.finish(false);
    turn_.end();
    settle(api_, future_, failure);
  }

 private:
  const Api& api_;
  Future* const future_;
  const Call call_;
  Turn turn_;
};

// XLA asks at registration which version we speak: the lesser of its own and the newest that we know.
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

XlaError* handle(Frame& frame) {
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
  Turn turn(call);
  Operations operations;
  if (turn.has_come()) {
    operations.start(call);
    if (operations.end_soon(call.bytes)) {
      const auto& failure = operations.finish(false);
      return failure ? make_error(api, *failure) : nullptr;
    }
  }
  auto created = arguments<FutureCreate>();
  if (XlaError* error = api.future_create(&created); error != nullptr) {
    operations.finish(false);  // blocks, but XLA must not take the memory back before
    return error;
  }
  Future* const future = created.future;
  if (!turn.has_come()) {
    auto late = std::make_unique<Late>(api, future, std::move(call), std::move(turn));
    frame.future = future;
    front::CompletionPool::shared().post(std::move(late));
    return nullptr;
  }
  Ending* const ending = std::make_unique<Ending>(api, future, std::move(operations), std::move(turn)).release();
  frame.future = future;
  if (!ending->operations().tell(&Ending::on_done, ending)) {
    front::CompletionPool::shared().post(std::unique_ptr<front::Job>(ending));  // it waits
  }
  return nullptr;
}

XlaError* fenced(Frame* frame) noexcept {
  try {
    return handle(*frame);
  } catch (const std::exception& e) {
    return make_error(*frame->api, {kInternal, e.what()});
  }
}

}  // namespace
}  // namespace hvd::xla

extern "C" {

// The handler of all collectives (call.h tells its attributes), for platform "cpu" of jax.ffi.register_ffi_target.
__attribute__((visibility("default"))) hvd::xla::XlaError* hvd_xla_collective(hvd::xla::Frame* frame) {
  return hvd::xla::fenced(frame);
}

// Registers it as "hvd_xla_collective" in the copy of XLA that `api` belongs to, for a program that is no JAX:
// TensorFlow exports it as xla::ffi::GetXlaFfiApi(). 0, or 1 with the cause in `text`.
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
