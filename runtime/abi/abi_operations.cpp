// The functions of hvd.h that concern operations. They check arguments and return statuses; other rooms make all
// decisions.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/abi/context.h"
#include "runtime/abi/fence.h"
#include "runtime/abi/op_checks.h"

namespace {

using hvd::Code;
using hvd::Engine;
using hvd::Error;
using hvd::fence;
using hvd::missing;
using hvd::resolve;
using hvd::Result;

Result<std::shared_ptr<const hvd::Operation>> operation_of(hvd_ctx* ctx, int64_t handle) {
  HVD_TRY_ASSIGN(const auto context, resolve(ctx));
  return context->find(handle);
}

// Waits for an operation, releases it, and returns its outcome.
Result<void> finish(hvd_ctx& context, int64_t handle) {
  HVD_TRY_ASSIGN(const auto operation, context.find(handle));
  const auto outcome = context.finish(*operation);
  HVD_TRY(context.release(handle));
  return outcome;
}

// Does the same for all, even if one fails; returns the first failure. Each handle is 0 after this, and 0 is skipped.
Result<void> finish_all(hvd_ctx& context, std::span<int64_t> handles) {
  Result<void> first;
  for (int64_t& handle : handles) {
    if (handle == 0) {
      continue;
    }
    Result<void> outcome = finish(context, handle);
    handle = 0;
    if (first.ok() && !outcome.ok()) {
      first = std::move(outcome);
    }
  }
  return first;
}

// Checks the operations of a group as a list; `call` names the function in the error.
Result<std::span<const hvd_op* const>> group_of(const hvd_op* const* ops, int32_t count, const char* call) {
  if (ops == nullptr) {
    return missing((std::string(call) + ": ops").c_str());
  }
  if (count < 1 || count > HVD_MAX_GROUP) {
    return Error(Code::kInvalid, std::string(call) + ": count is " + std::to_string(count) + ", expected 1 to " +
                                     std::to_string(HVD_MAX_GROUP));
  }
  return std::span(ops, static_cast<std::size_t>(count));
}

void fill(hvd_output& out, const hvd::Operation& operation) {
  const auto& owned = operation.completion->output();
  const std::span<const std::int64_t> shape = owned ? owned->shape : operation.shape();
  out.data = owned ? owned->address() : operation.output;
  out.size_bytes = static_cast<int64_t>(owned ? owned->size_bytes : operation.size_bytes);
  out.ndim = static_cast<int32_t>(shape.size());
  std::fill(std::begin(out.shape), std::end(out.shape), 0);
  std::copy(shape.begin(), shape.end(), std::begin(out.shape));
  const bool has_splits = owned && !owned->received_splits.empty();
  out.received_splits = has_splits ? owned->received_splits.data() : nullptr;
  out.received_count = has_splits ? static_cast<int32_t>(owned->received_splits.size()) : 0;
}

using Operations = std::vector<std::shared_ptr<const hvd::Operation>>;

// Returns all operations or an error; `call` names the function in the error.
Result<Operations> operations_of(hvd_ctx& context, const int64_t* handles, int32_t count, const std::string& call) {
  if (count < 0) {
    return Error(Code::kInvalid, call + ": count is " + std::to_string(count) + ", expected 0 or more");
  }
  if (handles == nullptr && count > 0) {
    return Error(Code::kInvalid, call + ": handles is NULL");
  }
  Operations operations;
  operations.reserve(static_cast<std::size_t>(count));
  for (const int64_t handle : std::span(handles, static_cast<std::size_t>(count))) {
    HVD_TRY_ASSIGN(auto operation, context.find(handle));
    operations.push_back(std::move(operation));
  }
  return operations;
}

void call_back(hvd_callback callback, void* arg, hvd_status status, const std::string& error) {
  const hvd::InCallback here;
  callback(arg, status, status == HVD_OK ? nullptr : error.c_str());
}

// Together is several operations that share one callback.
class Together {
 public:
  // It counts one more than the operations, for the call that registers them. So no operation can be the last before
  // that.
  Together(std::size_t count, hvd_callback callback, void* arg) : callback_(callback), arg_(arg), left_(count + 1) {}

  // Counts an operation that has ended. The last one calls the callback.
  void count(const Result<void>& outcome) {
    {
      const std::lock_guard lock(mu_);
      if (!outcome.ok() && status_ == HVD_OK) {
        status_ = static_cast<hvd_status>(outcome.error().code());
        text_ = outcome.error().message();
      }
      if (--left_ > 0) {
        return;
      }
    }
    call_back(callback_, arg_, status_, text_);
  }

 private:
  const hvd_callback callback_;
  void* const arg_;
  std::mutex mu_;
  // guarded by mu_ until left_ is 0, constant after that
  std::size_t left_;
  hvd_status status_ = HVD_OK;
  std::string text_;
};

// An unknown value is treated as kGoesOn, which is always safe.
Engine::Caller caller_of(int32_t waits) {
  return waits == HVD_WAITS_NEXT   ? Engine::Caller::kWaitsNext
         : waits == HVD_WAITS_SOON ? Engine::Caller::kWaitsSoon
                                   : Engine::Caller::kGoesOn;
}

}  // namespace

extern "C" {

hvd_status hvd_enqueue(hvd_ctx* ctx, const hvd_op* op, int64_t* handle) {
  return fence([&]() -> Result<void> {
    if (op == nullptr) {
      return missing("hvd_enqueue: op");
    }
    if (handle == nullptr) {
      return missing("hvd_enqueue: handle");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(*handle, context->enqueue(*op));
    return {};
  });
}

hvd_status hvd_execute(hvd_ctx* ctx, const hvd_op* op, int64_t* handle) {
  return fence([&]() -> Result<void> {
    if (op == nullptr) {
      return missing("hvd_execute: op");
    }
    if (handle != nullptr) {
      *handle = 0;
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->execute(*op, handle);
  });
}

hvd_status hvd_enqueue_group(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count, int64_t* handles) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto group, group_of(ops, count, "hvd_enqueue_group"));
    if (handles == nullptr) {
      return missing("hvd_enqueue_group: handles");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->enqueue_group(group, Engine::Caller::kGoesOn, handles);
  });
}

hvd_status hvd_execute_group(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto group, group_of(ops, count, "hvd_execute_group"));
    if (group.front() != nullptr && group.front()->kind != HVD_ALLREDUCE) {  // all are of one kind, or refused below
      return Error(Code::kInvalid, "hvd_execute_group: the operations are not allreduces; use hvd_enqueue_group");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    std::vector<int64_t> handles(group.size());
    HVD_TRY(context->enqueue_group(group, Engine::Caller::kWaitsNext, handles.data()));
    return finish_all(*context, handles);
  });
}

hvd_status hvd_enqueue_many(hvd_ctx* ctx, const hvd_op* const* ops, int32_t count, int32_t waits, int64_t* handles) {
  return fence([&]() -> Result<void> {
    if (ops == nullptr) {
      return missing("hvd_enqueue_many: ops");
    }
    if (handles == nullptr) {
      return missing("hvd_enqueue_many: handles");
    }
    if (count < 0 || count > HVD_MAX_GROUP) {
      return Error(Code::kInvalid, "hvd_enqueue_many: count is " + std::to_string(count) + ", expected 0 to " +
                                       std::to_string(HVD_MAX_GROUP));
    }
    std::fill_n(handles, count, 0);
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->enqueue_many(std::span(ops, static_cast<std::size_t>(count)), caller_of(waits), handles);
  });
}

hvd_status hvd_poll(hvd_ctx* ctx, int64_t handle, int32_t* done) {
  return fence([&]() -> Result<void> {
    if (done == nullptr) {
      return missing("hvd_poll: done");
    }
    HVD_TRY_ASSIGN(const auto operation, operation_of(ctx, handle));
    *done = operation->completion->is_done() ? 1 : 0;
    return {};
  });
}

hvd_status hvd_wait(hvd_ctx* ctx, int64_t handle) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(const auto operation, context->find(handle));
    return context->finish(*operation);
  });
}

hvd_status hvd_finish(hvd_ctx* ctx, int64_t* handles, int32_t count) {
  return fence([&]() -> Result<void> {
    if (handles == nullptr) {
      return missing("hvd_finish: handles");
    }
    if (count < 0) {
      return Error(Code::kInvalid, "hvd_finish: count is " + std::to_string(count) + ", expected 0 or more");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return finish_all(*context, std::span(handles, static_cast<std::size_t>(count)));
  });
}

hvd_status hvd_on_done(hvd_ctx* ctx, int64_t handle, hvd_callback callback, void* arg) {
  return fence([&]() -> Result<void> {
    if (callback == nullptr) {
      return missing("hvd_on_done: callback");
    }
    HVD_TRY_ASSIGN(const auto operation, operation_of(ctx, handle));
    return operation->completion->tell([callback, arg](const Result<void>& outcome) {
      if (outcome.ok()) {
        call_back(callback, arg, HVD_OK, {});
      } else {
        call_back(callback, arg, static_cast<hvd_status>(outcome.error().code()), outcome.error().message());
      }
    });
  });
}

hvd_status hvd_on_all_done(hvd_ctx* ctx, const int64_t* handles, int32_t count, hvd_callback callback, void* arg) {
  return fence([&]() -> Result<void> {
    if (callback == nullptr) {
      return missing("hvd_on_all_done: callback");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(const auto operations, operations_of(*context, handles, count, "hvd_on_all_done"));
    for (const auto& operation : operations) {
      if (operation->completion->has_listener()) {
        return Error(Code::kInvalid, "hvd_on_all_done: one of the operations has a callback already");
      }
    }
    const auto together = std::make_shared<Together>(operations.size(), callback, arg);
    for (const auto& operation : operations) {
      // If one fails (the same handle twice, say), the count stays above 0 and the callback is never called.
      HVD_TRY(operation->completion->tell([together](const Result<void>& outcome) { together->count(outcome); }));
    }
    together->count({});
    return {};
  });
}

hvd_status hvd_wait_some(hvd_ctx* ctx, const int64_t* handles, int32_t count, int64_t microseconds, int32_t* done) {
  return fence([&]() -> Result<void> {
    if (done == nullptr) {
      return missing("hvd_wait_some: done");
    }
    if (microseconds < 0) {
      return Error(Code::kInvalid,
                   "hvd_wait_some: microseconds is " + std::to_string(microseconds) + ", expected 0 or more");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(const auto operations, operations_of(*context, handles, count, "hvd_wait_some"));
    constexpr std::chrono::microseconds kMost = std::chrono::hours(24);  // more would not fit into a time point
    const auto until = hvd::Deadline::after(std::min(std::chrono::microseconds(microseconds), kMost));
    *done = 1;
    for (const auto& operation : operations) {
      context->wait(*operation, until);
      if (!operation->completion->is_done()) {
        *done = 0;
        break;
      }
    }
    return {};
  });
}

hvd_status hvd_result(hvd_ctx* ctx, int64_t handle, hvd_output* out) {
  return fence([&]() -> Result<void> {
    if (out == nullptr) {
      return missing("hvd_result: out");
    }
    HVD_TRY(hvd::check_struct("hvd_output", out->size, out->version, {sizeof(hvd_output)}));
    HVD_TRY_ASSIGN(const auto operation, operation_of(ctx, handle));
    if (!operation->completion->is_done()) {
      return Error(Code::kInvalid, "hvd_result: the operation has not finished; call hvd_wait first");
    }
    HVD_TRY(operation->completion->wait());
    fill(*out, *operation);
    return {};
  });
}

hvd_status hvd_fetch(hvd_ctx* ctx, int64_t handle, void* to, int64_t size_bytes, void* stream) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(const auto operation, context->find(handle));
    return context->fetch(*operation, to, size_bytes, stream);
  });
}

hvd_status hvd_release(hvd_ctx* ctx, int64_t handle) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->release(handle);
  });
}

}  // extern "C"
