// The end of a job whose devices are at work that will never be done.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"
#include "tests/multi/device/device_steps.h"

namespace hvd::test::device_end_test {
namespace {

// One operation on the rank's device, asked for but not waited for.
class Asked {
 public:
  Asked(DeviceJob& job, int rank, const std::string& name, int process_set)
      : ctx_(job.at(rank)), tensor_(job.gpu(rank), values_of(Dtype::kFloat32, 100, rank)) {
    Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {100}, name};
    task.process_set = process_set;
    hvd_op op = task.op_on(tensor_.data(), tensor_.data());
    op.device = rank;
    op.stream = job.gpu(rank).stream.handle();
    HVD_CHECK(hvd_enqueue(ctx_, &op, &handle_) == HVD_OK);
  }
  [[nodiscard]] Outcome wait() const { return outcome(hvd_wait(ctx_, handle_)); }
  void release() const { HVD_CHECK(hvd_release(ctx_, handle_) == HVD_OK); }

 private:
  hvd_ctx* ctx_;
  DeviceTensor tensor_;
  std::int64_t handle_ = 0;
};

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

// The device works off what was launched, which takes longer than NCCL's abort has while nothing ends.
TEST_CASE("devices: a long queue is worked off when the job ends, and nothing is left behind") {
  load_fakes();
  const Live before;
  constexpr int kRanks = 2;
  constexpr int kQueued = 250;
  EngineOptions options;
  options.fusion_threshold_bytes = 0;
  const std::string text = errors_of([&] {
    DeviceJob job(kRanks, options, false, LogLevel::kWarning);
    run_once(job, kRanks, 0);
    constexpr int kDelayUs = 20'000;
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
