#include "tests/support/fake_nccl/fake_nccl.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include <cuda.h>

#include "runtime/base/check.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_nccl/fake_comm.h"
#include "tests/support/fake_nccl/fake_faults.h"

namespace {

using hvd::NcclCode;
using hvd::NcclConfig;
using hvd::NcclHandle;
using hvd::NcclId;
using hvd::NcclOp;
using hvd::NcclStream;
using hvd::NcclType;
using hvd::fake::Call;
using hvd::fake::Kind;
using hvd::fake::Links;
using hvd::fake::Registration;
using hvd::fake::Work;
namespace faults = hvd::fake::nccl;

// Counts the call; whether it may go on.
NcclCode begin(const char* function) {
  return NcclCode{faults::count_call(function)};
}

// NCCL works on the device that is current.
bool has_context() {
  CUcontext current = nullptr;
  return cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr;
}

bool is_device_memory(const void* data) {
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  const auto number = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(data));
  return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

// Both sides of it lie in memory that the communicator knows.
bool is_registered(const ncclComm& comm, const Call& call) {
  const auto is_within = [](const Registration& each, const void* data) {
    const auto* byte = static_cast<const std::uint8_t*>(data);
    return byte >= each.data && byte < each.data + each.bytes;
  };
  return std::any_of(comm.registrations.begin(), comm.registrations.end(), [&](const Registration& each) {
    return is_within(each, call.input) && is_within(each, call.out);
  });
}

struct Group {
  int depth = 0;
  std::map<NcclHandle, std::vector<Call>> calls;
};
thread_local Group group;

struct Launch {
  std::shared_ptr<Work> work;
  std::vector<Call> calls;
};

void run_launch(void* argument) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
  launch->work->run(launch->calls);
}

// As NCCL does it for a non-blocking communicator: later, on a thread of its own, and the call returns before.
void launch(NcclHandle comm, std::vector<Call> calls) {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  auto what = std::make_shared<Launch>(Launch{comm->work, std::move(calls)});
  comm->start([context, what] {
    cuCtxPushCurrent(context);
    auto owned = std::make_unique<Launch>(std::move(*what));
    const NcclStream stream = owned->calls.front().stream;
    const CUresult code = cuLaunchHostFunc(stream, &run_launch, owned.get());
    if (code == CUDA_SUCCESS) {
      static_cast<void>(owned.release());  // run_launch has it
    }
    CUcontext popped = nullptr;
    cuCtxPopCurrent(&popped);
    return static_cast<int>(code == CUDA_SUCCESS ? NcclCode::kSuccess : NcclCode::kUnhandledCudaError);
  });
}

NcclCode close_group() {
  for (auto& [comm, calls] : group.calls) {
    launch(comm, std::move(calls));
  }
  const bool is_any = !group.calls.empty();
  group.calls.clear();
  return is_any ? NcclCode::kInProgress : NcclCode::kSuccess;
}

NcclCode add(NcclHandle comm, Call call) {
  if (const NcclCode code = begin(hvd::fake::name_of(call.kind)); code != NcclCode::kSuccess) {
    return code;
  }
  const bool reads =
      call.kind != Kind::kRecv && call.count > 0 && (call.kind != Kind::kBroadcast || call.peer == comm->work->rank);
  const bool writes =
      call.kind != Kind::kSend && call.count > 0 && (call.kind != Kind::kReduce || call.peer == comm->work->rank);
  if (!has_context() || comm->state == static_cast<int>(NcclCode::kInProgress)) {
    return NcclCode::kInvalidUsage;
  }
  if ((reads && !is_device_memory(call.input)) || (writes && !is_device_memory(call.out))) {
    return NcclCode::kInvalidArgument;
  }
  if (is_registered(*comm, call)) {
    faults::count_call("registered call");
  }
  group.calls[comm].push_back(call);
  return group.depth > 0 ? NcclCode::kSuccess : close_group();
}

int connect(ncclComm& comm) {
  if (faults::hangs_now("init", comm.work->rank)) {
    comm.work->links.wait_for_abort();
    return static_cast<int>(NcclCode::kSystemError);
  }
  if (faults::is_killed_now("init", comm.work->rank)) {
    hvd::fake::die();
  }
  void (*half_come)() = faults::is_killed_now("half init", comm.work->rank) ? &hvd::fake::die : nullptr;
  return static_cast<int>(comm.work->links.connect(comm.name, half_come) == Links::End::kDone ? NcclCode::kSuccess
                                                                                              : NcclCode::kSystemError);
}

// Each rank says its color and key, and knows then who is with it.
int split(ncclComm& parent, int color, int key, const std::string& name, NcclHandle* out) {
  const std::int32_t own[2] = {color, key};
  std::vector<std::vector<std::uint8_t>> all;
  if (parent.work->links.gather(own, sizeof own, all, nullptr) != Links::End::kDone) {
    return static_cast<int>(NcclCode::kSystemError);
  }
  int place = 0;
  int count = 0;
  for (int rank = 0; rank < parent.work->size; ++rank) {
    std::int32_t said[2] = {};
    std::memcpy(said, all[static_cast<std::size_t>(rank)].data(), sizeof said);
    if (said[0] == color) {
      ++count;
      place += said[1] < key || (said[1] == key && rank < parent.work->rank) ? 1 : 0;
    }
  }
  if (color == hvd::kNcclNoColor) {
    return static_cast<int>(NcclCode::kSuccess);
  }
  auto made = std::make_unique<ncclComm>(name + "-" + std::to_string(color), place, count);
  faults::add_live("live comm", 1);
  ncclComm& child = *made;
  *out = made.release();
  child.start([&child] { return connect(child); });
  return static_cast<int>(NcclCode::kSuccess);
}

void end(NcclHandle comm) {
  comm->work->is_aborted = true;
  comm->work->links.abort();
  comm->join();
  // It gives memory back, for which the driver waits until the device is idle: also for what others have under way.
  fake_cuda_wait_for_device();
  faults::add_live("live registration", -static_cast<int>(comm->registrations.size()));
  delete comm;
  faults::add_live("live comm", -1);
}

}  // namespace

extern "C" {

std::int64_t fake_nccl_count(const char* what) {
  return faults::calls_of(what);
}
void fake_nccl_fail(const char* function, int calls, int code) {
  faults::fail_at(function, calls, code);
}
void fake_nccl_hang(const char* function, int begins, int rank) {
  faults::hang_at(function, begins, rank);
}
void fake_nccl_release() {
  faults::release();
}
void fake_nccl_set_version(int version) {
  faults::set_version(version);
}
void fake_nccl_set_silent(int is_silent) {
  faults::set_silent(is_silent != 0);
}
void fake_nccl_set_delay_us(int delay_us) {
  faults::set_delay_us(delay_us);
}

NcclCode ncclGetVersion(int* version) {
  *version = faults::version();
  return begin("ncclGetVersion");
}

const char* ncclGetErrorString(NcclCode code) {
  static constexpr const char* kTexts[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                           "internal error", "invalid argument",     "invalid usage",
                                           "remote error",   "in progress"};
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(kTexts) ? kTexts[index] : "unknown result code";
}

const char* ncclGetLastError(NcclHandle) {
  return "said by the fake NCCL";
}

NcclCode ncclGetUniqueId(NcclId* id) {
  std::uint64_t number = 0;
  HVD_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number);
  const std::string name = "hvd-fake-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(number);
  std::memcpy(id->internal, name.c_str(), name.size() + 1);
  return begin("ncclGetUniqueId");
}

NcclCode ncclCommInitRankConfig(NcclHandle* comm, int size, NcclId id, int rank, NcclConfig* config) {
  if (const NcclCode code = begin("ncclCommInitRankConfig"); code != NcclCode::kSuccess) {
    return code;
  }
  const NcclConfig like;
  if (config->magic != like.magic || config->size < sizeof like || config->blocking != 0 || !has_context() ||
      rank < 0 || rank >= size) {
    return NcclCode::kInvalidArgument;
  }
  *comm = new ncclComm(id.internal, rank, size);
  faults::add_live("live comm", 1);
  (*comm)->start([made = *comm] { return connect(*made); });
  return NcclCode::kInProgress;
}

NcclCode ncclCommSplit(NcclHandle comm, int color, int key, NcclHandle* out, NcclConfig*) {
  if (const NcclCode code = begin("ncclCommSplit"); code != NcclCode::kSuccess) {
    return code;
  }
  const std::string name = comm->name + "-" + std::to_string(++comm->splits);
  comm->start([comm, color, key, name, out] { return split(*comm, color, key, name, out); });
  return NcclCode::kInProgress;
}

NcclCode ncclCommGetAsyncError(NcclHandle comm, NcclCode* state) {
  const int lost = comm->work->error;
  *state = NcclCode{lost != 0 ? lost : comm->state.load()};
  return begin("ncclCommGetAsyncError");
}

NcclCode ncclCommFinalize(NcclHandle comm) {
  comm->join();
  return begin("ncclCommFinalize");
}

NcclCode ncclCommDestroy(NcclHandle comm) {
  const NcclCode code = begin("ncclCommDestroy");
  end(comm);
  return code;
}

NcclCode ncclCommAbort(NcclHandle comm) {
  const NcclCode code = begin("ncclCommAbort");
  if (faults::hangs_now("ncclCommAbort", comm->work->rank)) {
    faults::wait_for_release();
  }
  end(comm);
  return code;
}

NcclCode ncclGroupStart() {
  const NcclCode code = begin("ncclGroupStart");
  group.depth += code == NcclCode::kSuccess ? 1 : 0;
  return code;
}

NcclCode ncclGroupEnd() {
  const NcclCode code = begin("ncclGroupEnd");
  if (--group.depth > 0) {
    return NcclCode::kSuccess;
  }
  if (code != NcclCode::kSuccess) {
    group.calls.clear();
    return code;
  }
  return close_group();
}

NcclCode ncclAllReduce(const void* input, void* out, std::size_t count, NcclType type, NcclOp op, NcclHandle comm,
                       NcclStream stream) {
  return add(comm, {Kind::kAllReduce, input, out, count, type, op, 0, stream});
}

NcclCode ncclBroadcast(const void* input, void* out, std::size_t count, NcclType type, int root, NcclHandle comm,
                       NcclStream stream) {
  return add(comm, {Kind::kBroadcast, input, out, count, type, NcclOp::kSum, root, stream});
}

NcclCode ncclReduce(const void* input, void* out, std::size_t count, NcclType type, NcclOp op, int root,
                    NcclHandle comm, NcclStream stream) {
  return add(comm, {Kind::kReduce, input, out, count, type, op, root, stream});
}

NcclCode ncclAllGather(const void* input, void* out, std::size_t count, NcclType type, NcclHandle comm,
                       NcclStream stream) {
  return add(comm, {Kind::kAllGather, input, out, count, type, NcclOp::kSum, 0, stream});
}

NcclCode ncclReduceScatter(const void* input, void* out, std::size_t count, NcclType type, NcclOp op, NcclHandle comm,
                           NcclStream stream) {
  return add(comm, {Kind::kReduceScatter, input, out, count, type, op, 0, stream});
}

NcclCode ncclSend(const void* data, std::size_t count, NcclType type, int peer, NcclHandle comm, NcclStream stream) {
  return add(comm, {Kind::kSend, data, nullptr, count, type, NcclOp::kSum, peer, stream});
}

NcclCode ncclRecv(void* data, std::size_t count, NcclType type, int peer, NcclHandle comm, NcclStream stream) {
  return add(comm, {Kind::kRecv, nullptr, data, count, type, NcclOp::kSum, peer, stream});
}

NcclCode ncclMemAlloc(void** data, std::size_t bytes) {
  if (const NcclCode code = begin("ncclMemAlloc"); code != NcclCode::kSuccess) {
    return code;
  }
  CUdeviceptr made = 0;
  if (!has_context() || cuMemAlloc(&made, bytes) != CUDA_SUCCESS) {
    return NcclCode::kUnhandledCudaError;
  }
  *data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(made));
  return NcclCode::kSuccess;
}

NcclCode ncclMemFree(void* data) {
  const NcclCode code = begin("ncclMemFree");
  const auto number = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(data));
  if (!has_context()) {
    return NcclCode::kUnhandledCudaError;
  }
  return cuMemFree(number) == CUDA_SUCCESS ? code : NcclCode::kUnhandledCudaError;
}

NcclCode ncclCommRegister(NcclHandle comm, void* data, std::size_t bytes, void** handle) {
  if (const NcclCode code = begin("ncclCommRegister"); code != NcclCode::kSuccess) {
    return code;
  }
  if (!has_context() || !is_device_memory(data)) {
    return NcclCode::kInvalidArgument;
  }
  const char* wanted = std::getenv("NCCL_LOCAL_REGISTER");
  if (wanted != nullptr && std::strcmp(wanted, "0") == 0) {
    *handle = nullptr;  // and success; as a handle that is given back it is unknown, as in NCCL before 2.23
    return NcclCode::kSuccess;
  }
  *handle = &comm->registrations.emplace_back(Registration{static_cast<const std::uint8_t*>(data), bytes});
  faults::add_live("live registration", 1);
  return NcclCode::kSuccess;
}

NcclCode ncclCommDeregister(NcclHandle comm, void* handle) {
  if (const NcclCode code = begin("ncclCommDeregister"); code != NcclCode::kSuccess) {
    return code;
  }
  const auto is_it = [&](const Registration& each) { return &each == handle; };
  if (comm->registrations.remove_if(is_it) == 0) {
    return NcclCode::kInvalidArgument;
  }
  faults::add_live("live registration", -1);
  return NcclCode::kSuccess;
}

}  // extern "C"
