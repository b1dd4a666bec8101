// The end of a job whose devices are at work that will never be done.
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"
#include "tests/multi/device/device_steps.h"
#include "tests/support/sanitizers.h"

namespace hvd::test::device_end_test {
namespace {

// One operation on the rank's device, asked for but not waited for.
class Asked {
 public:
  Asked(DeviceJob& job, int rank, const std::string& name, int process_set)
      : Asked(job, rank, task_of(name, process_set)) {}
  Asked(DeviceJob& job, int rank, const Task& task) : Asked(job, rank, task, job.gpu(rank).stream) {}
  Asked(DeviceJob& job, int rank, const Task& task, const DeviceStream& stream)
      : ctx_(job.at(rank)), tensor_(job.gpu(rank), std::vector<std::uint8_t>(task.bytes())) {
    hvd_op op = task.op_on(tensor_.data(), tensor_.data());
    op.device = rank;
    op.stream = stream.handle();
    HVD_CHECK(hvd_enqueue(ctx_, &op, &handle_) == HVD_OK);
  }
  static Task task_of(const std::string& name, int process_set) {
    Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {100}, name};
    task.process_set = process_set;
    return task;
  }
  [[nodiscard]] Outcome wait() const { return outcome(hvd_wait(ctx_, handle_)); }
  void release() const { HVD_CHECK(hvd_release(ctx_, handle_) == HVD_OK); }

 private:
  hvd_ctx* ctx_;
  DeviceTensor tensor_;
  std::int64_t handle_ = 0;
};

constexpr const char* kLost = "rank 1 was killed by signal 9 (SIGKILL)";

// So that the communicator of these ranks is there.
void run_once(DeviceJob& job, int ranks, int process_set) {
  on_all(ranks, [&](int rank) {
    const Asked one(job, rank, "one", process_set);
    CHECK(one.wait().error == "");
    one.release();
  });
}

std::int64_t begun() {
  return fake::cuda().count("host function");
}

void wait_until(const std::function<bool()>& is_so) {
  const Deadline deadline = test_deadline();
  while (!is_so()) {
    HVD_CHECK(!deadline.has_passed());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // sleeps: the fakes wake nobody
  }
}

// Returns the set of the first ranks.
std::int32_t add_set(DeviceJob& job, const std::vector<std::int32_t>& members) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(job.size()));
  on_all(job.size(), [&](int rank) {
    HVD_CHECK(hvd_process_set_add(job.at(rank), members.data(), static_cast<std::int32_t>(members.size()),
                                  &numbers[static_cast<std::size_t>(rank)]) == HVD_OK);
  });
  return numbers.front();
}

// Two ranks ask for something that is never done, and then for `next`. When `is_reached`, one rank is lost.
void lose_behind(const Task& before, const Task& next, const std::function<bool()>& is_reached) {
  constexpr int kRanks = 2;
  DeviceJob job(kRanks);
  on_all(kRanks, [&](int rank) {
    const Asked one(job, rank, before);
    CHECK(one.wait().error == "");
    one.release();
  });
  run_once(job, kRanks, 0);
  fake::nccl().hang("ncclAllReduce", -1, 1);
  on_all(kRanks, [&](int rank) {
    const Asked never(job, rank, "never", 0);
    const Asked behind(job, rank, next);
    if (rank == 0) {
      wait_until(is_reached);
      job.hub().notify_all(kLost);
    }
    CHECK(never.wait().says(kLost));
    CHECK(behind.wait().says(kLost));
    never.release();
    behind.release();
    job.job().leave(rank);
  });
  fake::nccl().hang("ncclAllReduce", 0, -1);
}

}  // namespace

// NCCL's abort of one gives memory back, for which the driver waits until the other's work is done, too.
TEST_CASE("devices: two communicators at work that is never done are ended both") {
  load_fakes();
  const Live before;
  {
    constexpr int kRanks = 3;
    constexpr int kMembers = 2;
    DeviceJob job(kRanks);
    run_once(job, kRanks, 0);
    std::int32_t set = 0;
    on_all(kRanks, [&](int rank) {
      const std::int32_t members[] = {0, 1};
      std::int32_t number = 0;
      HVD_CHECK(hvd_process_set_add(job.at(rank), members, kMembers, &number) == HVD_OK);
      if (rank == 0) {
        set = number;
      }
    });
    run_once(job, kMembers, set);
    fake::nccl().hang("ncclAllReduce", -1, 1);
    const std::int64_t ran = begun();
    on_all(kRanks, [&](int rank) {
      std::vector<std::unique_ptr<Asked>> asked;
      asked.push_back(std::make_unique<Asked>(job, rank, "of all", 0));
      if (rank < kMembers) {
        asked.push_back(std::make_unique<Asked>(job, rank, "of the set", set));
      }
      if (rank == 0) {
        wait_until([&] { return begun() == ran + kRanks + kMembers; });  // both are on all their devices
        job.hub().notify_all("rank 1 was killed by signal 9 (SIGKILL)");
      }
      for (const auto& one : asked) {
        CHECK(one->wait().says("rank 1 was killed by signal 9 (SIGKILL)"));
        one->release();
      }
      job.job().leave(rank);
    });
    fake::nccl().hang("ncclAllReduce", 0, -1);
  }
  CHECK(Live() == before);
}

// NCCL would give a communicator's memory back, for which the driver waits until the other's work is done.
TEST_CASE("devices: a rank that is lost is heard of while a process set is removed beside work that is never done") {
  load_fakes();
  const Live before;
  {
    constexpr int kRanks = 3;
    DeviceJob job(kRanks);
    run_once(job, kRanks, 0);
    const std::int32_t set = add_set(job, {0, 1});
    run_once(job, 2, set);
    fake::nccl().hang("ncclAllReduce", -1, 1);
    const std::int64_t ran = begun();
    on_all(kRanks, [&](int rank) {
      const Asked never(job, rank, "never", 0);
      wait_until([&] { return begun() == ran + kRanks; });
      const Outcome removed = outcome(hvd_process_set_remove(job.at(rank), set));
      if (rank == 2) {
        CHECK(removed.error == "");  // it is no member, and has nothing to end
        job.hub().notify_all(kLost);
      } else {
        CHECK(removed.says(kLost));
      }
      CHECK(never.wait().says(kLost));
      never.release();
      job.job().leave(rank);
    });
    fake::nccl().hang("ncclAllReduce", 0, -1);
  }
  CHECK(Live() == before);
}

// So it is where a communicator that cannot be made is given up.
TEST_CASE("devices: a communicator that cannot be made beside work that is never done is an error of all ranks") {
  load_fakes();
  const Live before;
  EngineOptions options;
  // Also of what is to succeed, which a sanitizer makes slow.
  options.set_timeout = std::chrono::seconds(kHasThreadSanitizer || kHasAddressSanitizer ? 20 : 5);
  {
    constexpr int kRanks = 3;
    DeviceJob job(kRanks, options);
    run_once(job, kRanks, 0);
    const std::int32_t set = add_set(job, {0, 1});
    run_once(job, 2, set);
    fake::nccl().hang("ncclAllReduce", -1, 1);
    fake::nccl().hang("init", 1, 1);  // the second rank of the new communicator
    const std::int64_t ran = begun();
    on_all(kRanks, [&](int rank) {
      std::optional<Asked> never;
      if (rank < 2) {
        never.emplace(job, rank, "never", set);
      }
      wait_until([&] { return begun() == ran + 2; });
      const std::int32_t members[] = {1, 2};
      std::int32_t number = 0;
      const Outcome made = outcome(hvd_process_set_add(job.at(rank), members, 2, &number));
      CHECK(made.says("not all ranks came within HOROVOD_START_TIMEOUT"));
      if (never) {
        CHECK(never->wait().status != HVD_OK);
        never->release();
      }
      job.job().leave(rank);
    });
    fake::nccl().hang("init", 0, -1);
    fake::nccl().hang("ncclAllReduce", 0, -1);
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: a rank that is lost is heard of where memory is too small, and its device is at work") {
  load_fakes();
  const Live before;
  SUBCASE("pinned memory, for a type that NCCL cannot reduce") {
    const Task small{HVD_ALLREDUCE, Dtype::kInt16, HVD_SUM, {100}, "small"};
    const Task large{HVD_ALLREDUCE, Dtype::kInt16, HVD_SUM, {100'000}, "large"};
    const std::int64_t made = fake::cuda().count("cuMemHostAlloc");
    lose_behind(small, large, [&] { return fake::cuda().count("cuMemHostAlloc") == made + 4; });
  }
  SUBCASE("registered memory, which NCCL refuses to one rank") {
    const Task plain = Asked::task_of("plain", 0);
    const Task packed{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {100}, "packed", 2.0};
    const std::int64_t asked = fake::nccl().count("ncclCommRegister");
    fake::nccl().fail("ncclCommRegister", 1, 2);
    lose_behind(plain, packed, [&] { return fake::nccl().count("ncclCommRegister") == asked + 2; });
    fake::nccl().fail("ncclCommRegister", 0, 0);
  }
  CHECK(Live() == before);
}

// There a call would block, and the engine be deaf.
TEST_CASE("devices: however much is asked for, no more is launched than there is room for on a stream") {
  load_fakes();
  constexpr int kRanks = 2;
  constexpr int kQueued = 500;
  EngineOptions options;
  options.fusion_threshold_bytes = 0;
  DeviceJob job(kRanks, options);
  run_once(job, kRanks, 0);
  constexpr int kDelayUs = 1000;
  fake::nccl().set_delay_us(kDelayUs);
  const std::int64_t full = fake::cuda().count("full stream");
  on_all(kRanks, [&](int rank) {
    std::vector<std::unique_ptr<Asked>> all;
    for (int number = 0; number < kQueued; ++number) {
      all.push_back(std::make_unique<Asked>(job, rank, "queued " + std::to_string(number), 0));
    }
    for (const auto& one : all) {
      CHECK(one->wait().error == "");
      one->release();
    }
  });
  fake::nccl().set_delay_us(0);
  CHECK(fake::cuda().count("full stream") == full);
}

TEST_CASE("devices: a thread of the program that blocks at its own full stream holds up no others") {
  load_fakes();
  const Live before;
  {
    constexpr int kRanks = 2;
    constexpr int kFills = 2000;  // more than there is room for
    EngineOptions options;
    options.devices.completes_early = true;
    DeviceJob job(kRanks, options);
    run_once(job, kRanks, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      HVD_CHECK(job.gpu(rank).stream.synchronize().ok());  // so that it is through, and not only launched
    }
    fake::nccl().hang("ncclAllReduce", -1, 1);
    std::atomic<int> come = 0;  // to the next step, by both
    std::atomic<bool> is_blocked = false;
    on_all(kRanks, [&](int rank) {
      Gpu& gpu = job.gpu(rank);
      const DeviceStream other = DeviceStream::make(gpu.device).value();
      const DeviceTensor tensor(gpu, std::vector<std::uint8_t>(400));
      const Asked never(job, rank, "never", 0);
      std::optional<Asked> meanwhile;
      if (rank == 0) {
        meanwhile.emplace(job, rank, Asked::task_of("meanwhile", 0), other);
      }
      CHECK(never.wait().error == "");  // it is launched, and the program's stream waits for it from now on
      ++come;
      wait_until([&] { return come >= kRanks; });
      std::vector<std::thread> blocked;
      if (rank == 0) {
        const std::int64_t full = fake::cuda().count("full stream");
        blocked.emplace_back([&] {
          for (int i = 0; i < kFills; ++i) {
            HVD_CHECK(gpu.device->fill(tensor.data(), 0, 400, gpu.stream.handle()).ok());
          }
        });
        wait_until([&] { return fake::cuda().count("full stream") > full; });
        const std::int64_t records = fake::cuda().count("cuEventRecord");
        blocked.emplace_back([&] {
          const Task task = Asked::task_of("blocked", 0);
          hvd_op op = task.op_on(tensor.data(), tensor.data());
          op.device = rank;
          op.stream = gpu.stream.handle();
          std::int64_t handle = 0;
          Outcome told = outcome(hvd_enqueue(job.at(rank), &op, &handle));
          if (told.status == HVD_OK) {  // it was let go before the job was closed
            told = outcome(hvd_finish(job.at(rank), &handle, 1));
          }
          CHECK(told.says(kLost));
        });
        wait_until([&] { return fake::cuda().count("cuEventRecord") > records; });
        is_blocked = true;
      } else {
        wait_until([&] { return is_blocked.load(); });
        meanwhile.emplace(job, rank, Asked::task_of("meanwhile", 0), other);
      }
      CHECK(meanwhile->wait().error == "");
      ++come;
      wait_until([&] { return come >= 2 * kRanks; });
      if (rank == 0) {
        job.hub().notify_all(kLost);
      }
      for (std::thread& thread : blocked) {
        thread.join();
      }
      ++come;
      wait_until([&] { return come >= 3 * kRanks; });  // nobody leaves in order before
      meanwhile->release();
      never.release();
      job.job().leave(rank);
    });
    fake::nccl().hang("ncclAllReduce", 0, -1);
  }
  CHECK(Live() == before);
}

// The job is over then, and what runs on the device is awaited still.
TEST_CASE("devices: a GPU that fails after another rank has left in order is an error of what runs there") {
  load_fakes();
  DeviceJob job(2);
  Gpu& gpu = job.gpu(0);
  const std::int32_t set = add_set(job, {0});
  const DeviceStream other = DeviceStream::make(gpu.device).value();
  const DeviceTensor tensor(gpu, std::vector<std::uint8_t>(4));
  std::atomic<bool> goes_on = false;
  const auto wait = [](void* flag) { wait_until([&] { return static_cast<std::atomic<bool>*>(flag)->load(); }); };
  HVD_CHECK(gpu.device->call_on_host(gpu.stream.handle(), wait, &goes_on).ok());
  const std::int64_t launched = fake::nccl().count("ncclAllReduce");
  const Asked behind(job, 0, "behind what the program does", set);
  wait_until([&] { return fake::nccl().count("ncclAllReduce") > launched; });
  job.job().leave(1);
  fake::cuda().fail("fill", 1, 700);
  HVD_CHECK(gpu.device->fill(tensor.data(), 0, 4, other.handle()).ok());
  CHECK(behind.wait().says("CUDA_ERROR_ILLEGAL_ADDRESS"));
  behind.release();
  fake::cuda().fail("fill", 0, 0);
  fake::cuda().mend(0);
  goes_on = true;
  job.job().leave(0);
}

// The device works off what was launched, which takes longer than NCCL's abort has while nothing ends.
TEST_CASE("devices: a long queue is worked off when the job ends, and nothing is left behind") {
  load_fakes();
  const Live before;
  constexpr int kRanks = 2;
  constexpr int kQueued = 60;  // as much as is launched at once
  EngineOptions options;
  options.fusion_threshold_bytes = 0;
  const std::string text = errors_of([&] {
    DeviceJob job(kRanks, options, false, LogLevel::kWarning);
    run_once(job, kRanks, 0);
    constexpr int kDelayUs = 70'000;
    fake::nccl().set_delay_us(kDelayUs);
    const std::int64_t launched = fake::nccl().count("ncclAllReduce");
    on_all(kRanks, [&](int rank) {
      std::vector<std::unique_ptr<Asked>> all;
      for (int number = 0; number < kQueued; ++number) {
        all.push_back(std::make_unique<Asked>(job, rank, "queued " + std::to_string(number), 0));
      }
      if (rank == 0) {
        wait_until([&] { return fake::nccl().count("ncclAllReduce") >= launched + kRanks * kQueued; });
        job.hub().notify_all("rank 1 was killed by signal 9 (SIGKILL)");
      }
      for (const auto& one : all) {
        static_cast<void>(one->wait());  // those that were through are right, the others fail
        one->release();
      }
      job.job().leave(rank);
    });
    fake::nccl().set_delay_us(0);
  });
  CAPTURE(text);
  CHECK(times_in(text, "is still at work that was aborted") == 0);
  CHECK(Live() == before);
}

TEST_CASE("devices: where NCCL's abort does not come back, calls end all the same, and so does the job") {
  load_fakes();
  const Live before;
  constexpr int kRanks = 2;
  const std::string text = errors_of([&] {
    DeviceJob job(kRanks, {}, false, LogLevel::kWarning);
    run_once(job, kRanks, 0);
    fake::nccl().hang("ncclAllReduce", -1, 1);
    fake::nccl().hang("ncclCommAbort", -1, -1);
    std::atomic<int> asked = 0;
    on_all(kRanks, [&](int rank) {
      const Asked one(job, rank, "never", 0);
      if (++asked == kRanks) {
        job.hub().notify_all("rank 1 was killed by signal 9 (SIGKILL)");
      }
      CHECK(one.wait().says("rank 1 was killed by signal 9 (SIGKILL)"));
      one.release();
      job.job().leave(rank);
      // What the test itself has on the device is to be given back after the device lets go.
      if (++asked == 2 * kRanks) {
        fake::nccl().hang("ncclCommAbort", 0, -1);
        fake::nccl().hang("ncclAllReduce", 0, -1);
        fake::nccl().release();
      }
    });
  });
  CAPTURE(text);
  CHECK(times_in(text, "is still at work that was aborted") == kRanks);
  wait_until([&] { return Live().comms == before.comms; });
}

}  // namespace hvd::test::device_end_test
