// What a training step costs the device, and how it goes together with the program's own work there.
#include "tests/multi/device/device_steps.h"

#include <thread>

#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"

namespace hvd::test::device_steps_test {
namespace {

// What a program gets from the driver only by waiting for the whole device.
constexpr const char* kSynchronous[] = {"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuMemAlloc",
                                        "cuMemFree",           "cuMemHostAlloc",   "cuMemFreeHost"};
// What a step may call, but for looks at events, which take as many as they last.
constexpr const char* kCounted[] = {
    "cuStreamWaitEvent", "cuEventRecord",   "cuEventCreate",  "cuStreamIsCapturing",
    "cuMemcpyAsync",     "cuMemsetD8Async", "cuLaunchKernel", "cuStreamCreateWithPriority"};

std::int64_t sum_of(std::span<const char* const> names) {
  std::int64_t sum = 0;
  for (const char* name : names) {
    sum += fake::cuda().count(name);
  }
  return sum;
}

}  // namespace

TEST_CASE("devices: a steady step packs once, unpacks once, and never waits for the device") {
  load_fakes();
  const Live before;
  constexpr int kRanks = 2;
  constexpr int kSteps = 5;
  {
    DeviceJob job(kRanks);
    std::vector<std::unique_ptr<Gradients>> all;
    for (int rank = 0; rank < kRanks; ++rank) {
      all.push_back(std::make_unique<Gradients>(job.gpu(rank), 20, rank));
    }
    const auto run = [&](int steps) {
      on_all(kRanks, [&](int rank) {
        for (int i = 0; i < steps; ++i) {
          all[static_cast<std::size_t>(rank)]->step(job.at(rank));
        }
      });
    };
    run(2);  // makes what is kept
    const auto synchronous = sum_of(kSynchronous);
    const auto counted = sum_of(kCounted);
    const auto launches = fake::cuda().count("cuLaunchKernel");
    const auto reductions = fake::nccl().count("ncclAllReduce");
    run(kSteps);
    CHECK(sum_of(kSynchronous) == synchronous);
    CHECK(fake::cuda().count("cuLaunchKernel") - launches == 2 * kRanks * kSteps);
    CHECK(fake::nccl().count("ncclAllReduce") - reductions == kRanks * kSteps);
    // Capture asked, ready noted and waited for, packed, unpacked, done noted; not one for each tensor.
    CHECK(sum_of(kCounted) - counted <= std::int64_t{10} * kRanks * kSteps);
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: an operation waits on the device for what the program does there, and the program for it") {
  load_fakes();
  const Live before;
  for (const bool early : {false, true}) {
    EngineOptions options;
    options.devices.completes_early = early;
    DeviceJob job(2, options);
    std::vector<int> sums(2);
    on_all(2, [&](int rank) {
      Gpu& gpu = job.gpu(rank);
      DeviceStream other = DeviceStream::make(gpu.device).value();
      const std::vector<float> ones(1000, 1.0F);
      std::vector<std::uint8_t> bytes(4000);
      std::memcpy(bytes.data(), ones.data(), bytes.size());
      DeviceTensor a(gpu, bytes);
      DeviceTensor b(gpu, bytes);
      HVD_CHECK(gpu.device->synchronize(gpu.stream.handle()).ok());
      for (int turn = 0; turn < 10; ++turn) {
        // Filled on the stream just before, and read on it right after; two operations on two streams under way.
        a.fill();
        HVD_CHECK(gpu.device->fill(b.data(), 0, bytes.size(), other.handle()).ok());
        Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {1000}, "a " + std::to_string(turn)};
        Task second{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {1000}, "b " + std::to_string(turn)};
        hvd_op op_a = task.op_on(a.data(), a.data());
        hvd_op op_b = second.op_on(b.data(), b.data());
        op_a.device = op_b.device = gpu.device->info().ordinal;
        op_a.stream = gpu.stream.handle();
        op_b.stream = other.handle();
        std::int64_t handles[2] = {};
        HVD_CHECK(hvd_enqueue(job.at(rank), &op_a, &handles[0]) == HVD_OK);
        HVD_CHECK(hvd_enqueue(job.at(rank), &op_b, &handles[1]) == HVD_OK);
        HVD_CHECK(hvd_finish(job.at(rank), handles, 2) == HVD_OK);
        std::vector<float> found(1000);
        const std::vector<std::uint8_t> out = a.bytes();
        std::memcpy(found.data(), out.data(), out.size());
        sums[static_cast<std::size_t>(rank)] += found[0] == 2.0F && found[999] == 2.0F ? 1 : 0;
        HVD_CHECK(gpu.device->synchronize(other.handle()).ok());
        std::memcpy(found.data(), b.data(), out.size());  // the fake's memory is the host's
        sums[static_cast<std::size_t>(rank)] += found[0] == 0.0F ? 1 : 0;
      }
    });
    CHECK(sums == std::vector<int>{20, 20});
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: completion on streams hands results over on the stream too") {
  load_fakes();
  const Live before;
  {
    EngineOptions options;
    options.devices.completes_early = true;
    DeviceJob job(2, options);
    for (const int kind : {HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER, HVD_BROADCAST, HVD_ALLREDUCE}) {
      for (int turn = 0; turn < 5; ++turn) {
        const Task task{kind, Dtype::kInt32, HVD_SUM, {4, 3}, "early " + std::to_string(kind)};
        job.check(task, [&](int rank) { return values_of(Dtype::kInt32, 12, rank + turn); });
      }
    }
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: operations on hosts and on devices go side by side") {
  load_fakes();
  DeviceJob job(2);
  on_all(2, [&](int rank) {
    Gradients gradients(job.gpu(rank), 5, rank);
    FloatOp on_host("host", 50, 1.0F);
    for (int i = 0; i < 5; ++i) {
      HVD_CHECK(on_host.start(job.at(rank)).status == HVD_OK);
      gradients.step(job.at(rank));
      HVD_CHECK(on_host.wait(job.at(rank)).status == HVD_OK);
      HVD_CHECK(on_host.output[49] == 2.0F);
      HVD_CHECK(hvd_release(job.at(rank), on_host.handle) == HVD_OK);
    }
  });
}

TEST_CASE("devices: what a graph is captured from is refused, and so is a second device") {
  load_fakes();
  DeviceJob job(1);
  Gpu& gpu = job.gpu(0);
  const Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {4}, "captured"};
  const auto input = values_of(task.dtype, 4, 0);
  CHECK(run_on_device(job.at(0), gpu, task, input).outcome.error == "");
  DeviceTensor tensor(gpu, {});
  fake::cuda().set_capturing(gpu.stream.handle(), true);
  hvd_op op = task.op_on(tensor.data(), tensor.data());
  op.device = 0;
  op.stream = gpu.stream.handle();
  std::int64_t handle = 0;
  const Outcome refused = outcome(hvd_enqueue(job.at(0), &op, &handle));
  CHECK(refused.status == HVD_INVALID);
  CHECK(refused.says("a CUDA graph is being captured from the stream of 'captured'"));
  fake::cuda().set_capturing(gpu.stream.handle(), false);
  CHECK(run_on_device(job.at(0), gpu, task, input).outcome.error == "");
  Gpu second(1);
  const Outcome elsewhere = run_on_device(job.at(0), second, task, input).outcome;
  CHECK(elsewhere.status == HVD_INVALID);
  CHECK(elsewhere.says("this rank works on GPU 0, and the tensor lies on GPU 1"));
  Task none = task;
  hvd_op far = none.op_on(tensor.data(), tensor.data());
  far.device = 99;
  DeviceJob other(1);
  const Outcome missing = outcome(hvd_enqueue(other.at(0), &far, &handle));
  CHECK(missing.status == HVD_NOT_FOUND);
  CHECK(missing.says("GPU 99"));
}

TEST_CASE("devices: a graph that the program captures meanwhile is not spoiled, and ends no job") {
  load_fakes();
  constexpr int kRanks = 2;
  DeviceJob job(kRanks);
  const auto spoiled = fake::cuda().count("spoiled capture");
  const Task task{HVD_ALLGATHER, Dtype::kFloat32, HVD_SUM, {70'000}, "gathered"};
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
  for (int rank = 0; rank < kRanks; ++rank) {
    tensors.push_back(std::make_unique<DeviceTensor>(job.gpu(rank), values_of(task.dtype, 70'000, rank)));
  }
  const DeviceStream captured = DeviceStream::make(job.gpu(0).device).value();
  fake::cuda().set_capturing(captured.handle(), true);
  on_all(kRanks, [&](int rank) {
    // Each result needs new memory, since those before are kept. A thread that waits may run the engine; here it is a
    // new one each time, whose mode is the usual one before and after.
    std::vector<std::int64_t> handles(20);
    for (std::int64_t& handle : handles) {
      std::thread waiting([&] {
        hvd_op op = task.op_on(tensors[static_cast<std::size_t>(rank)]->data(), nullptr);
        op.device = rank;
        op.stream = job.gpu(rank).stream.handle();
        CHECK(outcome(hvd_enqueue(job.at(rank), &op, &handle)).error == "");
        CHECK(outcome(hvd_wait(job.at(rank), handle)).error == "");
        CHECK(job.gpu(rank).device->set_capture_mode(CaptureMode::kGlobal).value() == CaptureMode::kGlobal);
      });
      waiting.join();
    }
    for (const std::int64_t handle : handles) {
      CHECK(hvd_release(job.at(rank), handle) == HVD_OK);
    }
  });
  fake::cuda().set_capturing(captured.handle(), false);
  CHECK(fake::cuda().count("spoiled capture") == spoiled);
}

TEST_CASE("devices: ranks with one GPU, and without NCCL, go through the hosts with one notice") {
  load_fakes();
  const auto run = [&](int version, bool shares, const std::string& part) {
    fake::nccl().set_version(version);
    const auto launches = fake::nccl().count("ncclAllReduce");
    const std::string text = errors_of([&] {
      DeviceJob job(2, {}, shares, LogLevel::kWarning);
      for (const char* name : {"a", "b"}) {
        const Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {4}, name};
        job.check(task, [&](int rank) { return values_of(task.dtype, 4, rank); });
      }
    });
    CAPTURE(text);
    CHECK(times_in(text, "tensors on GPUs go through the hosts' memory") == (part.empty() ? 0 : 1));
    CHECK(times_in(text, part) >= 1);
    CHECK((fake::nccl().count("ncclAllReduce") > launches) == part.empty());
    fake::nccl().set_version(23000);
  };
  run(21700, false, "is too old; update it to 2.18.0 or later");
  run(22703, true, "rank 0 and rank 1 share a GPU, which NCCL can from 2.30 on, and this is 2.27.3");
  run(22703, false, "");
  run(23000, true, "");
}

}  // namespace hvd::test::device_steps_test
