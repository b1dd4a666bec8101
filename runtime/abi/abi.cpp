// The functions of hvd.h that concern the job as a whole. They check arguments and return statuses; other rooms make
// all decisions.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/abi/config.h"
#include "runtime/abi/context.h"
#include "runtime/abi/default_context.h"
#include "runtime/abi/fence.h"
#include "runtime/abi/op_checks.h"
#include "runtime/device/device.h"
#include "runtime/nccl/nccl_library.h"
#include "runtime/rendezvous/hmac.h"
#include "runtime/rendezvous/store_client.h"

namespace {

using hvd::Code;
using hvd::Error;
using hvd::fence;
using hvd::missing;
using hvd::resolve;
using hvd::Result;

int32_t number_of(hvd_ctx* ctx, int hvd::RankMap::* member) noexcept {
  int32_t number = -1;
  fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    number = context->map().*member;
    return {};
  });
  return number;
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

Result<void> add_process_set(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number, bool by_members) {
  if (number == nullptr) {
    return missing("hvd_process_set_add: number");
  }
  HVD_TRY_ASSIGN(const auto context, resolve(ctx));
  HVD_TRY_ASSIGN(*number, context->add_process_set(ranks, count, by_members));
  return {};
}

// A failing program must not lose time on an agent that does not answer.
constexpr hvd::Duration kTellTime = std::chrono::seconds(1);

Result<void> tell_failure(int32_t kind, int32_t exit_code, int32_t has_committed, const char* what) {
  if (what == nullptr) {
    return missing("hvd_report_failure: what");
  }
  if (kind < HVD_FAILURE_ENDS || kind > HVD_FAILURE_NOTICED || exit_code < 0 || exit_code > 255) {
    return Error(Code::kInvalid, "hvd_report_failure: no such kind of failure, or an exit code that is not 0 to 255");
  }
  HVD_TRY_ASSIGN(const hvd::Config config, hvd::config_from_process());
  if (config.agent_socket.empty()) {
    return Error(Code::kNotFound, "hvdrun has not started this process");
  }
  const hvd::FailureNews news{static_cast<hvd::FailureNews::Kind>(kind), -1, exit_code, hvd::one_line(what),
                              has_committed != 0};
  return hvd::StoreClient::tell_once(config.agent_socket, config.agent_token, config.map.rank, news,
                                     hvd::Deadline::after(kTellTime));
}

}  // namespace

extern "C" {

hvd_status hvd_init(const hvd_options* options) {
  return fence([&]() -> Result<void> {
    HVD_TRY(hvd::refuse_in_callback());
    return hvd::DefaultContext::instance().init(options);
  });
}

hvd_status hvd_shutdown(void) {
  return fence([]() -> Result<void> {
    HVD_TRY(hvd::refuse_in_callback());
    hvd::DefaultContext::instance().shutdown();
    return {};
  });
}

int32_t hvd_is_initialized(void) {
  int32_t is_initialized = 0;
  fence([&]() -> Result<void> {
    HVD_TRY(hvd::refuse_in_callback());
    is_initialized = hvd::DefaultContext::instance().is_joined() ? 1 : 0;
    return {};
  });
  return is_initialized;
}

hvd_status hvd_report_failure(int32_t kind, int32_t exit_code, int32_t has_committed, const char* what) {
  return fence([&] { return tell_failure(kind, exit_code, has_committed, what); });
}

hvd_status hvd_create(const hvd_options* options, hvd_ctx** out) {
  return fence([&]() -> Result<void> {
    if (out == nullptr) {
      return missing("hvd_create: out");
    }
    *out = nullptr;
    HVD_TRY(hvd::refuse_in_callback());
    static_cast<void>(hvd::DefaultContext::instance());  // this registers the work to do at process exit
    HVD_TRY_ASSIGN(auto context, hvd::make_context(options));
    *out = context.release();
    return {};
  });
}

void hvd_destroy(hvd_ctx* ctx) {
  fence([&]() -> Result<void> {
    HVD_TRY(hvd::refuse_in_callback());
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
  return fence([&] { return add_process_set(ctx, ranks, count, number, false); });
}

hvd_status hvd_process_set_add_by_members(hvd_ctx* ctx, const int32_t* ranks, int32_t count, int32_t* number) {
  return fence([&] { return add_process_set(ctx, ranks, count, number, true); });
}

hvd_status hvd_process_set_remove(hvd_ctx* ctx, int32_t number) {
  return fence([&]() -> Result<void> {
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->remove_process_set(number);
  });
}

hvd_status hvd_process_set_numbers(hvd_ctx* ctx, int32_t* numbers, int32_t capacity, int32_t* count) {
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

hvd_status hvd_counters_read(hvd_ctx* ctx, int32_t process_set, hvd_counters* out) {
  return fence([&]() -> Result<void> {
    if (out == nullptr) {
      return missing("hvd_counters_read: out");
    }
    HVD_TRY(hvd::check_struct("hvd_counters", out->size, out->version, {sizeof(hvd_counters)}));
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    return context->read_counters(process_set, *out);
  });
}

hvd_status hvd_mac(hvd_ctx* ctx, const void* data, int64_t size_bytes, uint8_t* mac) {
  return fence([&]() -> Result<void> {
    if (mac == nullptr || size_bytes < 0 || (data == nullptr && size_bytes > 0)) {
      return missing("hvd_mac: data or mac");
    }
    HVD_TRY_ASSIGN(const auto context, resolve(ctx));
    const std::string made =
        context->mac_of({static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size_bytes)});
    static_assert(HVD_MAC_BYTES == hvd::kMacBytes);
    std::copy(made.begin(), made.end(), mac);
    return {};
  });
}

hvd_status hvd_timeline_start(hvd_ctx* ctx, const char* path, int32_t mark_cycles) {
  return fence([&]() -> Result<void> {
    if (path == nullptr || *path == '\0') {
      return Error(hvd::Code::kInvalid, "a timeline needs the path of a file");
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
      case HVD_HAS_CHANGED: {
        HVD_TRY_ASSIGN(const auto context, resolve(ctx));
        HVD_TRY_ASSIGN(const bool has_changed, context->has_changed());
        value = has_changed ? 1 : 0;
        return {};
      }
      case HVD_IS_GROWING: {
        HVD_TRY_ASSIGN(const auto context, resolve(ctx));
        HVD_TRY_ASSIGN(const bool is_growing, context->is_growing());
        value = is_growing ? 1 : 0;
        return {};
      }
      default:
        return Error(Code::kNotFound, "there is no feature " + std::to_string(feature));
    }
  });
  return value;
}

const char* hvd_last_error(void) {
  return hvd::last_error().c_str();
}

int32_t hvd_abi_version(void) {
  return HVD_ABI_VERSION;
}

const char* hvd_version(void) {
  return HVD_VERSION;
}

}  // extern "C"
