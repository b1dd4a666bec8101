// What breaks on devices, and that everybody hears of it.
#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"

namespace hvd::test {
namespace {

constexpr const char* kCudaCalls[] = {
    "cuInit",          "cuDeviceGet",       "cuDeviceGetName",     "cuDeviceGetUuid", "cuDeviceGetAttribute",
    "cuEventCreate",   "cuEventRecord",     "cuStreamIsCapturing", "cuMemAlloc",      "cuStreamCreateWithPriority",
    "cuEventQuery",    "cuStreamWaitEvent", "cuCtxPushCurrent",    "cuMemHostAlloc",  "cuCtxGetStreamPriorityRange",
    "cuLaunchKernel",  "cuModuleLoadData",  "cuModuleGetFunction", "cuMemcpyAsync",   "cuDevicePrimaryCtxRetain",
    "cuMemsetD8Async", "cuLaunchHostFunc"};
constexpr const char* kNcclCalls[] = {"ncclGetVersion", "ncclGetUniqueId",       "ncclCommInitRankConfig",
                                      "ncclCommSplit",  "ncclCommGetAsyncError", "ncclGroupStart",
                                      "ncclGroupEnd",   "ncclAllReduce",         "ncclBroadcast",
                                      "ncclReduce",     "ncclAllGather",         "ncclSend",
                                      "ncclRecv",       "ncclReduceScatter"};

// An operation of every kind, and a process set, on each rank; the first that fails ends it.
Outcome run_everything(DeviceJob& job, int rank) {
  Gpu& gpu = job.gpu(rank);
  const auto run = [&](int kind, std::int64_t rows, const std::string& name, double prescale, int process_set) {
    Task task{kind, Dtype::kFloat32, HVD_AVERAGE, {rows, 3}, name, prescale};
    task.process_set = process_set;
    const auto input = values_of(task.dtype, static_cast<std::size_t>(rows) * 3, rank);
    DeviceTensor in(gpu, input);
    DeviceTensor out(gpu, input);
    hvd_op op = task.op_on(in.data(), out.data());
    op.device = gpu.device->ordinal();
    op.stream = gpu.stream.handle();
    std::int64_t handle = 0;
    Outcome done = outcome(hvd_enqueue(job.at(rank), &op, &handle));
    if (done.status == HVD_OK) {
      done = outcome(hvd_finish(job.at(rank), &handle, 1));
    }
    // The memory goes when nobody works on it any more.
    HVD_CHECK(gpu.device->synchronize(gpu.stream.handle()).ok() || done.status != HVD_OK);
    return done;
  };
  const std::pair<int, int> all[] = {{HVD_ALLREDUCE, 4}, {HVD_BROADCAST, 4},     {HVD_ALLGATHER, 4 + rank},
                                     {HVD_ALLGATHER, 4}, {HVD_REDUCESCATTER, 4}, {HVD_REDUCESCATTER, 5},
                                     {HVD_ALLTOALL, 4}};
  for (const auto& [kind, rows] : all) {
    const std::string name = std::to_string(kind) + " " + std::to_string(kind == HVD_ALLGATHER ? 0 : rows);
    const Outcome done = run(kind, rows, name, kind == HVD_ALLREDUCE ? 2.0 : 1.0, 0);
    if (done.status != HVD_OK) {
      return done;
    }
  }
  const std::int32_t both[] = {0, 1};
  std::int32_t number = 0;
  if (job.size() > 2) {
    const Outcome made = outcome(hvd_process_set_add(job.at(rank), both, 2, &number));
    if (made.status != HVD_OK || rank > 1) {
      return made;
    }
  }
  return run(HVD_ALLREDUCE, 4, "in a set", 1.0, number);
}

// The outcomes of all ranks of a job in which everything is done; and it ends.
std::vector<Outcome> outcomes_of(const EngineOptions& options, int ranks) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  DeviceJob job(ranks, options);
  on_all(ranks, [&](int rank) { outcomes[static_cast<std::size_t>(rank)] = run_everything(job, rank); });
  job.stop();
  return outcomes;
}

}  // namespace

TEST_CASE("devices: a rank that is killed in the middle of a reduction ends the others' calls, by its name") {
  load_fakes();
  const Live before;
  for (const bool is_silent : {false, true}) {
    fake::nccl().set_silent(is_silent);
    for (const bool early : {false, true}) {
      EngineOptions options;
      options.devices.completes_early = early;
      DeviceJob job(3, options);
      fake::nccl().hang("ncclAllReduce", 1, 1);  // on the device of the rank that is about to die
      std::vector<Outcome> outcomes(3);
      std::atomic<int> started = 0;
      on_all(3, [&](int rank) {
        Gpu& gpu = job.gpu(rank);
        DeviceTensor tensor(gpu, values_of(Dtype::kFloat32, 1000, rank));
        const Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {1000}, "gradient"};
        hvd_op op = task.op_on(tensor.data(), tensor.data());
        op.device = rank;
        op.stream = gpu.stream.handle();
        std::int64_t handle = 0;
        HVD_CHECK(hvd_enqueue(job.at(rank), &op, &handle) == HVD_OK);
        if (++started == 3) {
          // All have asked for it; it can never be done.
          job.hub().notify_all("rank 1 was killed by signal 9 (SIGKILL)");
        }
        outcomes[static_cast<std::size_t>(rank)] = outcome(hvd_wait(job.at(rank), handle));
        if (early) {
          // It was told to be done when it was launched, if it was; then the next call tells.
          FloatOp next("next", 4, 1.0F);
          const Outcome told = next.run(job.at(rank));
          if (outcomes[static_cast<std::size_t>(rank)].status == HVD_OK) {
            outcomes[static_cast<std::size_t>(rank)] = told;
          }
        }
        HVD_CHECK(hvd_release(job.at(rank), handle) == HVD_OK);
        job.job().leave(rank);
        HVD_CHECK(gpu.device->synchronize(gpu.stream.handle()).ok());
      });
      for (const Outcome& told : outcomes) {
        CHECK(told.status == HVD_LOST_PEER);
        CHECK(told.says("rank 1 was killed by signal 9 (SIGKILL)"));
      }
      fake::nccl().hang("ncclAllReduce", 0, -1);
    }
  }
  fake::nccl().set_silent(false);
  CHECK(Live() == before);
}

TEST_CASE("devices: every call of the driver and of NCCL may fail; each rank is told, and nothing is left") {
  load_fakes();
  const Live before;
  const auto run = [&](const char* call, int ranks, bool by_nccl, const std::function<void(int)>& fail) {
    for (const int nth : {1, 2}) {
      CAPTURE(call);
      CAPTURE(nth);
      CAPTURE(by_nccl);
      EngineOptions options;
      options.devices.uses_nccl.fill(by_nccl);
      fail(nth);
      outcomes_of(options, ranks);
      fail(0);
      CHECK(Live() == before);
    }
  };
  for (const bool by_nccl : {true, false}) {
    for (const char* call : kCudaCalls) {
      run(call, 2, by_nccl, [&](int nth) { fake::cuda().fail(call, nth, 0); });
    }
  }
  for (const char* call : kNcclCalls) {
    run(call, 3, true, [&](int nth) { fake::nccl().fail(call, nth, 1); });
  }
}

TEST_CASE("devices: a communicator that cannot be made is an error of all ranks, by its deadline") {
  load_fakes();
  const Live before;
  EngineOptions options;
  options.set_timeout = std::chrono::milliseconds(200);
  fake::nccl().hang("init", 1, 1);
  for (const Outcome& told : outcomes_of(options, 3)) {
    CHECK(told.says("no NCCL communicator could be made: rank "));
    CHECK(told.says("not all ranks came within HOROVOD_START_TIMEOUT"));
  }
  fake::nccl().hang("init", 0, -1);
  CHECK(Live() == before);
}

TEST_CASE("devices: what is never done is a stall, and ends as one") {
  load_fakes();
  const Live before;
  EngineOptions options;
  options.stall.warn_after = std::chrono::milliseconds(100);
  options.stall.end_after = std::chrono::milliseconds(300);
  fake::nccl().hang("ncclAllReduce", 1, 1);
  for (const Outcome& told : outcomes_of(options, 2)) {
    CHECK(told.says("stalled: '0 4' was launched on all ranks' devices and is not done"));
  }
  fake::nccl().hang("ncclAllReduce", 0, -1);
  CHECK(Live() == before);
}

}  // namespace hvd::test
