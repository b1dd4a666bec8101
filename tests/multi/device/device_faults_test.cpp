// What breaks on devices, and that everybody hears of it.
#include <algorithm>

#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"
#include "tests/multi/device/device_steps.h"
#include "tests/support/sanitizers.h"

namespace hvd::test::device_faults_test {
namespace {

constexpr int kTimes = kHasThreadSanitizer ? 1 : 2;  // the first call fails, and the second

// What comes of a call that fails, once.
enum class Then {
  kTold,      // an error of every rank's calls; of one it names the function, with the library's own words
  kNoticed,   // all goes on, and a line of the log names the function
  kHarmless,  // all goes on
  kUnused     // it is not called
};

struct Function {
  const char* name;
  Then by_nccl;
  Then staged;
  const char* why = "";  // it is not told
};

constexpr const char* kOnce = "it is for memory that is kept, and tried again when what was kept has been freed";
constexpr const char* kKernels = "without kernels tensors go through the host";
constexpr const char* kLeft = "what the driver does not take back ends with the process";
constexpr Function kCudaCalls[] = {
    {"cuInit", Then::kTold, Then::kTold},
    {"cuDeviceGet", Then::kTold, Then::kTold},
    {"cuDeviceGetName", Then::kTold, Then::kTold},
    {"cuDeviceGetUuid", Then::kTold, Then::kTold},
    {"cuDeviceGetAttribute", Then::kTold, Then::kTold},
    {"cuDevicePrimaryCtxRetain", Then::kTold, Then::kTold},
    {"cuCtxGetStreamPriorityRange", Then::kTold, Then::kTold},
    {"cuCtxPushCurrent", Then::kTold, Then::kTold},
    {"cuStreamCreateWithPriority", Then::kTold, Then::kTold},
    {"cuStreamIsCapturing", Then::kTold, Then::kTold},
    {"cuThreadExchangeStreamCaptureMode", Then::kHarmless, Then::kHarmless, "unless a graph is captured meanwhile"},
    {"cuStreamWaitEvent", Then::kTold, Then::kTold},
    {"cuEventCreate", Then::kTold, Then::kTold},
    {"cuEventRecord", Then::kTold, Then::kTold},
    {"cuEventQuery", Then::kTold, Then::kTold},
    {"cuMemcpyAsync", Then::kUnused, Then::kTold},
    {"cuMemsetD8Async", Then::kTold, Then::kUnused},
    {"cuMemHostAlloc", Then::kUnused, Then::kTold},
    {"cuLaunchKernel", Then::kTold, Then::kUnused},
    {"cuMemAlloc", Then::kHarmless, Then::kHarmless, kOnce},
    {"cuModuleLoadData", Then::kNoticed, Then::kHarmless, kKernels},
    {"cuModuleGetFunction", Then::kNoticed, Then::kHarmless, kKernels},
    {"cuStreamDestroy", Then::kNoticed, Then::kNoticed, kLeft},
    {"cuEventDestroy", Then::kNoticed, Then::kNoticed, kLeft},
    {"cuMemFree", Then::kHarmless, Then::kNoticed, kLeft},
    {"cuMemFreeHost", Then::kUnused, Then::kNoticed, kLeft},
    {"cuModuleUnload", Then::kHarmless, Then::kHarmless, kLeft},
    {"cuDevicePrimaryCtxRelease", Then::kHarmless, Then::kHarmless, kLeft},
    {"cuCtxPopCurrent", Then::kHarmless, Then::kHarmless,
     "the thread's own context is current again, or there is none"},
    {"cuStreamSynchronize", Then::kUnused, Then::kUnused, "nothing waits for the device"},
    {"cuCtxSynchronize", Then::kUnused, Then::kUnused, "nothing waits for the device"},
    {"cuEventSynchronize", Then::kUnused, Then::kUnused, "nothing waits for the device"}};

constexpr const char* kEnd = "at the end; the communicator is aborted instead";
constexpr const char* kPacking = "tensors are packed into the device's own memory";
constexpr Function kNcclCalls[] = {
    {"ncclGetUniqueId", Then::kTold, Then::kUnused},
    {"ncclCommInitRankConfig", Then::kTold, Then::kUnused},
    {"ncclCommSplit", Then::kTold, Then::kUnused},
    {"ncclCommGetAsyncError", Then::kTold, Then::kUnused},
    {"ncclGroupStart", Then::kTold, Then::kUnused},
    {"ncclGroupEnd", Then::kTold, Then::kUnused},
    {"ncclAllReduce", Then::kTold, Then::kUnused},
    {"ncclBroadcast", Then::kTold, Then::kUnused},
    {"ncclReduce", Then::kTold, Then::kUnused},
    {"ncclAllGather", Then::kTold, Then::kUnused},
    {"ncclReduceScatter", Then::kTold, Then::kUnused},
    {"ncclSend", Then::kTold, Then::kUnused},
    {"ncclRecv", Then::kTold, Then::kUnused},
    {"ncclGetVersion", Then::kNoticed, Then::kHarmless, "without NCCL tensors go through the host"},
    {"ncclMemAlloc", Then::kNoticed, Then::kUnused, kPacking},
    {"ncclCommRegister", Then::kNoticed, Then::kUnused, kPacking},
    {"ncclMemFree", Then::kHarmless, Then::kUnused, kLeft},
    {"ncclCommDeregister", Then::kHarmless, Then::kUnused, kEnd},
    {"ncclCommFinalize", Then::kHarmless, Then::kUnused, kEnd},
    {"ncclCommDestroy", Then::kHarmless, Then::kUnused, kLeft},
    {"ncclCommAbort", Then::kUnused, Then::kUnused, "only what has failed is aborted"}};

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
    add(HVD_ALLREDUCE, 4, "for those who joined", rank, 1.0);
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
    op.device = gpu.device->info().ordinal;
    op.stream = gpu.stream.handle();
    std::int64_t handle = 0;
    const Outcome started = outcome(hvd_enqueue(ctx, &op, &handle));
    return started.status == HVD_OK ? outcome(hvd_finish(ctx, &handle, 1)) : started;
  }
  // Rank 0 alone asks for one more; the others stand in.
  Outcome run_while_others_have_joined(hvd_ctx* ctx, int rank) {
    if (rank == 0) {
      if (const Outcome done = run(ctx, tasks.size() - 2, 0); done.status != HVD_OK) {
        return done;
      }
    }
    hvd_op join = HVD_OP_INIT;
    join.kind = HVD_JOIN;
    std::int64_t handle = 0;
    const Outcome joined = outcome(hvd_enqueue(ctx, &join, &handle));
    return joined.status == HVD_OK ? outcome(hvd_finish(ctx, &handle, 1)) : joined;
  }
  // The first that fails ends it.
  Outcome run_all(hvd_ctx* ctx, int rank, int ranks) {
    for (std::size_t i = 0; i + 2 < tasks.size(); ++i) {
      if (const Outcome done = run(ctx, i, 0); done.status != HVD_OK) {
        return done;
      }
    }
    if (const Outcome done = run_while_others_have_joined(ctx, rank); done.status != HVD_OK) {
      return done;
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
  DeviceJob job(ranks, options, false, LogLevel::kWarning);
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

struct Failed {
  std::int64_t calls = 0;  // of the function
  std::vector<Outcome> outcomes;
  std::string log;
};

// The nth call of one function of the driver or of NCCL fails.
Failed fail_one(const char* name, int nth, int ranks, bool by_nccl) {
  Failed failed;
  EngineOptions options;
  options.devices.uses_nccl.fill(by_nccl);
  const bool is_nccl = std::string_view(name).substr(0, 4) == "nccl";
  const auto count = [&] { return is_nccl ? fake::nccl().count(name) : fake::cuda().count(name); };
  failed.log = errors_of([&] {
    failed.outcomes = outcomes_of(options, ranks, [&](bool begins) {
      failed.calls = count() - failed.calls;
      is_nccl ? fake::nccl().fail(name, begins ? nth : 0, 1) : fake::cuda().fail(name, begins ? nth : 0, 0);
    });
  });
  return failed;
}

bool says_where(const Outcome& told) {
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) {
    if (told.says(rank)) {
      return true;
    }
  }
  return false;
}

void check_told(const std::string& name, const Failed& failed) {
  const std::string words =
      name.substr(0, 4) == "nccl" ? "unhandled cuda error (NCCL last said: said by the fake NCCL)" : "CUDA_ERROR_";
  int named = 0;
  for (const Outcome& told : failed.outcomes) {
    CAPTURE(told.error);
    CHECK(told.status != HVD_OK);
    const bool is_named = told.says(name) && told.says(words);
    named += is_named ? 1 : 0;
    CHECK((is_named || says_where(told)));
  }
  CHECK(named > 0);
}

void check_goes_on(const Failed& failed) {
  for (const Outcome& told : failed.outcomes) {
    CHECK(told.error == "");
  }
}

void check_failures(std::span<const Function> functions, int ranks, bool by_nccl) {
  const Live before;
  for (const Function& function : functions) {
    CAPTURE(function.name);
    CAPTURE(by_nccl);
    const Then then = by_nccl ? function.by_nccl : function.staged;
    CHECK((then == Then::kTold || then == Then::kUnused || *function.why != '\0'));
    for (int nth = 1; nth <= kTimes; ++nth) {
      CAPTURE(nth);
      const Failed failed = fail_one(function.name, nth, ranks, by_nccl);
      CAPTURE(failed.log);
      CHECK((failed.calls > 0) == (then != Then::kUnused));
      if (then == Then::kTold && failed.calls >= nth) {
        check_told(function.name, failed);
      } else {
        check_goes_on(failed);
      }
      CHECK((then != Then::kNoticed || failed.calls < nth || times_in(failed.log, function.name) > 0));
      CHECK(Live() == before);
    }
  }
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

TEST_CASE("devices: a call of the driver that fails is told to all ranks, or does no harm; by NCCL") {
  load_fakes();
  check_failures(kCudaCalls, 2, true);
}

TEST_CASE("devices: a call of the driver that fails is told to all ranks, or does no harm; through the host") {
  load_fakes();
  check_failures(kCudaCalls, 2, false);
}

TEST_CASE("devices: a call of NCCL's that fails is told to all ranks, or does no harm") {
  load_fakes();
  check_failures(kNcclCalls, 3, true);
  check_failures(kNcclCalls, 1, false);
}

// As for an NCCL_SOCKET_IFNAME that names no interface, which NCCL says in its words; it is no matter of GPUs.
TEST_CASE("devices: a use that NCCL calls invalid is told in its words, and no other reason is made up") {
  load_fakes();
  const auto fail = [](bool begins) { fake::nccl().fail("ncclGetUniqueId", begins ? 1 : 0, 5); };
  for (const Outcome& told : outcomes_of({}, 2, fail)) {
    CHECK(told.says("ncclGetUniqueId: invalid usage (NCCL last said: said by the fake NCCL)"));
    CHECK_FALSE(told.says("two ranks have one GPU"));
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
  const auto hang = [](bool begins) { fake::nccl().hang("ncclAllReduce", begins ? 1 : 0, 1); };
  const auto is_told = [](const Outcome& told) {
    return told.says("stalled: 'scaled' was launched on all ranks' devices and is not done");
  };
  std::vector<Outcome> outcomes;
  // Within a short time not both ranks of a busy machine may ask for it.
  for (int limit_s = 3; limit_s < 200 && (outcomes.empty() || !std::ranges::all_of(outcomes, is_told)); limit_s *= 4) {
    options.stall.end_after = std::chrono::seconds(limit_s);
    outcomes = outcomes_of(options, 2, hang);
  }
  for (const Outcome& told : outcomes) {
    CHECK_MESSAGE(is_told(told), told.error);
  }
  CHECK(Live() == before);
}

}  // namespace hvd::test::device_faults_test
