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

// An operation of every kind, for one rank; all of the test's own memory is there before anything may fail.
struct Everything {
  Everything(Gpu& own_gpu, int rank) : gpu(own_gpu) {
    add(HVD_ALLREDUCE, 4, "scaled", rank, 2.0);
    add(HVD_BROADCAST, 4, "send", rank, 1.0);
    add(HVD_ALLGATHER, 4 + rank, "uneven", rank, 1.0);
    add(HVD_ALLGATHER, 4, "even", rank, 1.0);
    add(HVD_REDUCESCATTER, 6, "scatter", rank, 1.0);
    add(HVD_REDUCESCATTER, 5, "scatter uneven", rank, 2.0);
    add(HVD_ALLTOALL, 6, "exchange", rank, 1.0);
    add(HVD_ALLREDUCE, 4, "in a set", rank, 1.0);
    HVD_CHECK(gpu.device->synchronize(gpu.stream.handle()).ok());
  }
  void add(int kind, std::int64_t rows, const std::string& name, int rank, double prescale) {
    tasks.push_back({kind, Dtype::kFloat32, HVD_AVERAGE, {rows, 3}, name, prescale});
    for (int i = 0; i < 2; ++i) {
      tensors.push_back(
          std::make_unique<DeviceTensor>(gpu, values_of(Dtype::kFloat32, static_cast<std::size_t>(rows) * 3, rank)));
    }
  }
  Outcome run(hvd_ctx* ctx, std::size_t index, int process_set) {
    tasks[index].process_set = process_set;
    hvd_op op = tasks[index].op_on(tensors[2 * index]->data(), tensors[2 * index + 1]->data());
    op.device = gpu.device->ordinal();
    op.stream = gpu.stream.handle();
    std::int64_t handle = 0;
    const Outcome started = outcome(hvd_enqueue(ctx, &op, &handle));
    return started.status == HVD_OK ? outcome(hvd_finish(ctx, &handle, 1)) : started;
  }
  // The first that fails ends it.
  Outcome run_all(hvd_ctx* ctx, int rank, int ranks) {
    for (std::size_t i = 0; i + 1 < tasks.size(); ++i) {
      if (const Outcome done = run(ctx, i, 0); done.status != HVD_OK) {
        return done;
      }
    }
    const std::int32_t both[] = {0, 1};
    std::int32_t number = 0;
    if (ranks > 2) {
      const Outcome made = outcome(hvd_process_set_add(ctx, both, 2, &number));
      if (made.status != HVD_OK || rank > 1) {
        return made;
      }
    }
    return run(ctx, tasks.size() - 1, number);
  }

  Gpu& gpu;
  std::vector<Task> tasks;
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
};

// The outcomes of all ranks of a job in which everything is done, some of it wrong; a rank that fails leaves, as a
// program does that ends. `fail` is called with true before, and with false when the job has ended.
std::vector<Outcome> outcomes_of(const EngineOptions& options, int ranks, const std::function<void(bool)>& fail) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  DeviceJob job(ranks, options);
  std::vector<std::unique_ptr<Everything>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<Everything>(job.gpu(rank), rank));
  }
  fail(true);
  on_all(ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    outcomes[at] = all[at]->run_all(job.at(rank), rank, ranks);
    if (outcomes[at].status != HVD_OK) {
      job.job().leave(rank);
    }
  });
  job.stop();
  fail(false);
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
    int failures = 0;
    for (const int nth : {1, 2}) {
      CAPTURE(call);
      CAPTURE(nth);
      CAPTURE(by_nccl);
      EngineOptions options;
      options.devices.uses_nccl.fill(by_nccl);
      const auto outcomes = outcomes_of(options, ranks, [&](bool begins) { fail(begins ? nth : 0); });
      for (const Outcome& told : outcomes) {
        CHECK((told.status == HVD_OK || !told.error.empty()));
        failures += told.status == HVD_OK ? 0 : 1;
      }
      CHECK(Live() == before);
    }
    MESSAGE(std::string(call), ": ", failures, " of the ranks were told of it");
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
  const auto hang = [](bool begins) { fake::nccl().hang("init", begins ? 1 : 0, 1); };
  for (const Outcome& told : outcomes_of(options, 3, hang)) {
    CHECK(told.says("no NCCL communicator could be made"));
    CHECK(told.says("not all ranks came within HOROVOD_START_TIMEOUT"));
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: what is never done is a stall, and ends as one") {
  load_fakes();
  const Live before;
  EngineOptions options;
  options.stall.warn_after = std::chrono::milliseconds(100);
  options.stall.end_after = std::chrono::seconds(3);  // within which both ranks ask for it, also on a busy machine
  const auto hang = [](bool begins) { fake::nccl().hang("ncclAllReduce", begins ? 1 : 0, 1); };
  for (const Outcome& told : outcomes_of(options, 2, hang)) {
    CHECK(told.says("stalled: 'scaled' was launched on all ranks' devices and is not done"));
  }
  CHECK(Live() == before);
}

}  // namespace hvd::test
