// The functions of hvd.h: arguments in, statuses out. Nothing is decided here, and no exception leaves.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "hvd/hvd.h"
#include "runtime/abi/context.h"
#include "runtime/abi/default_context.h"
#include "runtime/abi/op_checks.h"
#include "runtime/backend/nccl_library.h"
#include "runtime/device/device.h"

namespace {

using hvd::Code;
using hvd::Error;
using hvd::Result;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

hvd_status fail(Code code, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {
    last_error().clear();  // no memory for the text; the status still tells
  }
  return static_cast<hvd_status>(code);
}

hvd_status status_of(const Result<void>& result) {
  return result.ok() ? HVD_OK : fail(result.error().code(), result.error().message().c_str());
}

// Runs one call's body; an exception (of the standard library, or a defect) becomes a status.
template <typename Body>
hvd_status fence(Body body) noexcept {
  try {
    return status_of(body());
  } catch (const std::bad_alloc&) {
    return fail(Code::kResource, "out of memory");
  } catch (const std::exception& e) {
    return fail(Code::kInternal, e.what());
  } catch (...) {
    return fail(Code::kInternal, "an exception of unknown type");
  }
}

Error missing(const char* argument) {
  return Error(Code::kInvalid, std::string(argument) + " is NULL");
}

// The caller's context (whose life is the caller's business), or the process's.
Result<std::shared_ptr<hvd_ctx>> resolve(hvd_ctx* ctx) {
  if (ctx != nullptr) {
    return std::shared_ptr<hvd_ctx>(std::shared_ptr<void>(), ctx);
  }
  auto context = hvd::DefaultContext::instance().get();
  if (context == nullptr) {
    return Error(Code::kNotInitialized, "Horovod has not been initialized; use hvd.init().");
  }
  return context;
}

int32_t number_of(hvd_ctx* ctx, int hvd::RankMap::* member) noexcept {
  int32_t number = -1;
  fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    number = context->map().*member;
    return {};
  });
  return number;
}

Result<std::shared_ptr<const hvd_ctx::Operation>> operation_of(hvd_ctx* ctx, int64_t handle) {
  HVD_TRY_ASSIGN(const auto context, resolve(ctx));
  return context->find(handle);
}

// Waits for an operation and forgets it; its outcome.
Result<void> finish(hvd_ctx& context, int64_t handle) {
  HVD_TRY_ASSIGN(const auto operation, context.find(handle));
  const auto outcome = context.finish(*operation);
  HVD_TRY(context.release(handle));
  return outcome;
}

Result<void> hand_out(const std::vector<int>& all, int32_t* out, int32_t capacity, int32_t* count) {
  if (count == nullptr) {
    return missing("count");
  }
  if (capacity < 0 || (out == nullptr && capacity > 0)) {
    return Error(Code::kInvalid, "the array is NULL or its capacity negative");
  }
  *count = static_cast<int32_t>(all.size());
  std::copy_n(all.begin(), std::min<std::size_t>(all.size(), static_cast<std::size_t>(capacity)), out);
  return {};
}

void fill(hvd_output& out, const hvd_ctx::Operation& operation) {
  const auto& owned = operation.completion->output();
  const std::span<const std::int64_t> shape = owned ? owned->shape : operation.shape();
  out.data = owned ? owned->address() : operation.output;
  out.size_bytes = static_cast<int64_t>(owned ? owned->size_bytes : operation.size_bytes);
  out.ndim = static_cast<int32_t>(shape.size());
  std::fill(std::begin(out.shape), std::end(out.shape), 0);
  std::copy(shape.begin(), shape.end(), std::begin(out.shape));
  if (out.version >= 2) {
    const bool has_splits = owned && !owned->received_splits.empty();
    out.received_splits = has_splits ? owned->received_splits.data() : nullptr;
    out.received_count = has_splits ? static_cast<int32_t>(owned->received_splits.size()) : 0;
  }
}

}  // namespace

extern "C" {

hvd_status hvd_init(const hvd_options* options) {
  return fence([&] { return hvd::DefaultContext::instance().init(options); });
}

hvd_status hvd_shutdown(void) {
  return fence([]() -> Result<void> {
    hvd::DefaultContext::instance().shutdown();
    return {};
  });
}

int32_t hvd_is_initialized(void) {
  int32_t is_initialized = 0;
  fence([&]() -> Result<void> {
    const auto context = hvd::DefaultContext::instance().get();
    is_initialized = context != nullptr && !context->is_forked() ? 1 : 0;
    return {};
  });
  return is_initialized;
}

hvd_status hvd_create(const hvd_options* options, hvd_ctx** out) {
  return fence([&]() -> Result<void> {
    if (out == nullptr) {
      return missing("hvd_create: out");
    }
    *out = nullptr;
    static_cast<void>(hvd::DefaultContext::instance());  // what is to be done at exit is arranged there
    HVD_TRY_ASSIGN(auto context, hvd::make_context(options));
    *out = context.release();
    return {};
  });
}

void hvd_destroy(hvd_ctx* ctx) {
  fence([&]() -> Result<void> {
    std::unique_ptr<hvd_ctx> owned(ctx);
    if (owned != nullptr) {
      owned->close();
    }
    return {};
  });
}

int32_t hvd_rank(hvd_ctx* ctx) {
  return number_of(ctx, &hvd::RankMap::rank);
}
int32_t hvd_size(hvd_ctx* ctx) {
  return number_of(ctx, &hvd::RankMap::size);
}
int32_t hvd_local_rank(hvd_ctx* ctx) {
  return number_of(ctx, &hvd::RankMap::local_rank);
}
int32_t hvd_local_size(hvd_ctx* ctx) {
  return number_of(ctx, &hvd::RankMap::local_size);
}
int32_t hvd_cross_rank(hvd_ctx* ctx) {
  return number_of(ctx, &hvd::RankMap::cross_rank);
}
int32_t hvd_cross_size(hvd_ctx* ctx) {
  return number_of(ctx, &hvd::RankMap::cross_size);
}

hvd_status hvd_process_set_add(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number) {
  return fence([&]() -> Result<void> {
    if (number == nullptr) {
      return missing("hvd_process_set_add: number");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(*number, context->add_process_set(ranks, count));
    return {};
  });
}

hvd_status hvd_process_set_remove(hvd_ctx* ctx, int32_t number) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->remove_process_set(number);
  });
}

hvd_status hvd_process_numbers(hvd_ctx* ctx, int32_t* numbers, int32_t capacity, int32_t* count) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(const auto all, context->process_sets());
    return hand_out(all, numbers, capacity, count);
  });
}

hvd_status hvd_process_set_ranks(hvd_ctx* ctx, int32_t number, int32_t* ranks, int32_t capacity, int32_t* count) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(const auto all, context->ranks_of_process_set(number));
    return hand_out(all, ranks, capacity, count);
  });
}

hvd_status hvd_buffer_create(hvd_ctx* ctx, int64_t size_bytes, void** data) {
  return fence([&]() -> Result<void> {
    if (data == nullptr) {
      return missing("hvd_buffer_create: data");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    HVD_TRY_ASSIGN(*data, context->create_buffer(size_bytes));
    return {};
  });
}

hvd_status hvd_buffer_destroy(hvd_ctx* ctx, void* data) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->destroy_buffer(data);
  });
}

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
    if (ops == nullptr) {
      return missing("hvd_enqueue_group: ops");
    }
    if (handles == nullptr) {
      return missing("hvd_enqueue_group: handles");
    }
    if (count < 1 || count > HVD_MAX_GROUP) {
      return Error(Code::kInvalid, "hvd_enqueue_group: count is " + std::to_string(count) + ", expected 1 to " +
                                       std::to_string(HVD_MAX_GROUP));
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->enqueue_group(std::span(ops, static_cast<std::size_t>(count)), handles);
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
    return context->enqueue_many(std::span(ops, static_cast<std::size_t>(count)), waits == 1, handles);
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
    Result<void> first;
    for (int64_t& handle : std::span(handles, static_cast<std::size_t>(count))) {
      if (handle == 0) {
        continue;
      }
      Result<void> outcome = finish(*context, handle);
      handle = 0;
      if (first.ok() && !outcome.ok()) {
        first = std::move(outcome);
      }
    }
    return first;
  });
}

hvd_status hvd_result(hvd_ctx* ctx, int64_t handle, hvd_output* out) {
  return fence([&]() -> Result<void> {
    if (out == nullptr) {
      return missing("hvd_result: out");
    }
    HVD_TRY(hvd::check_struct("hvd_output", out->size, out->version,
                              {offsetof(hvd_output, received_splits), sizeof(hvd_output)}));
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

hvd_status hvd_read_counters(hvd_ctx* ctx, int32_t process_set, hvd_counters* out) {
  return fence([&]() -> Result<void> {
    if (out == nullptr) {
      return missing("hvd_read_counters: out");
    }
    HVD_TRY(hvd::check_struct("hvd_counters", out->size, out->version,
                              {offsetof(hvd_counters, requests), sizeof(hvd_counters)}));
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->read_counters(process_set, *out);
  });
}

hvd_status hvd_timeline_start(hvd_ctx* ctx, const char* path, int32_t mark_cycles) {
  return fence([&]() -> Result<void> {
    if (path == nullptr || *path == '\0') {
      return missing("hvd_timeline_start: path");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->start_timeline(path, mark_cycles != 0);
  });
}

hvd_status hvd_timeline_stop(hvd_ctx* ctx) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->stop_timeline();
  });
}

int32_t hvd_feature(hvd_ctx* ctx, int32_t feature) {
  int32_t value = 0;
  fence([&]() -> Result<void> {
    switch (feature) {
      case HVD_HAS_MPI: {
        HVD_TRY_ASSIGN(const hvd::Config config, hvd::config_from_process());
        HVD_TRY_ASSIGN(const std::string version, hvd::find_mpi(config.mpi.library));
        value = version.empty() ? 0 : 1;
        return {};
      }
      case HVD_USES_MPI: {
        HVD_TRY_ASSIGN(const auto context, resolve(ctx));
        value = context->uses_mpi() ? 1 : 0;
        return {};
      }
      case HVD_MPI_THREADS:
        value = hvd::has_mpi_all_threads() ? 1 : 0;
        return {};
      case HVD_HAS_CUDA: {
        HVD_TRY(hvd::Device::describe_all());
        value = 1;
        return {};
      }
      case HVD_HAS_NCCL: {
        HVD_TRY_ASSIGN(const hvd::Config config, hvd::config_from_process());
        HVD_TRY_ASSIGN(const auto nccl, hvd::NcclLibrary::load(config.engine.devices.nccl_library));
        value = nccl->version();
        return {};
      }
      case HVD_NODE_CORES: {
        HVD_TRY_ASSIGN(const auto context, resolve(ctx));
        HVD_TRY_ASSIGN(value, context->node_cores());
        return {};
      }
      default:
        return Error(Code::kNotFound, "there is no feature " + std::to_string(feature));
    }
  });
  return value;
}

const char* hvd_last_error(void) {
  return last_error().c_str();
}

int32_t hvd_abi_version(void) {
  return HVD_ABI_VERSION;
}

const char* hvd_version(void) {
  return HVD_VERSION;
}

}  // extern "C"
