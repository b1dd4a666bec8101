// What tensors are packed into: NCCL's own memory, registered with the communicator.
#include <cstdlib>
#include <latch>

#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"
#include "tests/multi/device/device_steps.h"

namespace hvd::test::device_buffers_test {
namespace {

constexpr int kRanks = 2;

// Calls of NCCL's since it was made.
class Calls {
 public:
  std::int64_t operator()(const char* what) const { return fake::nccl().count(what) - before_.at(what); }

 private:
  static std::map<std::string, std::int64_t> now() {
    std::map<std::string, std::int64_t> counts;
    for (const char* what : {"ncclMemAlloc", "ncclMemFree", "ncclCommRegister", "ncclCommDeregister", "ncclAllReduce",
                             "ncclCommAbort", "registered call"}) {
      counts[what] = fake::nccl().count(what);
    }
    return counts;
  }
  const std::map<std::string, std::int64_t> before_ = now();
};

// A job in which all take some steps with this many gradients; `steps` says what came out of each sum.
void take_steps(DeviceJob& job, int gradients, int steps) {
  on_all(kRanks, [&](int rank) {
    Gradients all(job.gpu(rank), gradients, rank);
    for (int i = 0; i < steps; ++i) {
      all.step(job.at(rank));
    }
  });
}

}  // namespace

TEST_CASE("devices: what is packed lies in memory of NCCL's, registered once, and given back at the end") {
  load_fakes();
  const Live before;
  const Calls calls;
  {
    DeviceJob job(kRanks);
    take_steps(job, 20, 3);
    CHECK(calls("ncclMemAlloc") == kRanks);
    CHECK(calls("ncclCommRegister") == kRanks);
    take_steps(job, 20, 5);
    CHECK(calls("ncclCommRegister") == kRanks);
    CHECK(calls("ncclAllReduce") == 8 * kRanks);
    CHECK(calls("registered call") == 8 * kRanks);
    CHECK(calls("ncclMemFree") == 0);
  }
  CHECK(calls("ncclCommDeregister") == kRanks);
  CHECK(calls("ncclMemFree") == kRanks);
  CHECK(calls("ncclCommAbort") == 0);
  CHECK(Live() == before);
}

TEST_CASE("devices: a larger step gets twice the memory, and what was before stays until the end") {
  load_fakes();
  const Live before;
  const Calls calls;
  {
    DeviceJob job(kRanks);
    take_steps(job, 3, 1);
    Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_AVERAGE, {700'000}, "large", 2.0};
    for (const char* name : {"large", "again"}) {
      task.name = name;
      job.check(task, [&](int rank) { return values_of(task.dtype, 700'000, rank); });
    }
    CHECK(calls("ncclMemAlloc") == 2 * kRanks);
    CHECK(calls("ncclMemFree") == 0);
    CHECK(calls("registered call") == 3 * kRanks);
  }
  CHECK(calls("ncclCommDeregister") == 2 * kRanks);
  CHECK(calls("ncclMemFree") == 2 * kRanks);
  CHECK(Live() == before);
}

TEST_CASE("devices: where NCCL refuses memory or its registration, the device's serves, with one notice") {
  load_fakes();
  for (const char* call : {"ncclMemAlloc", "ncclCommRegister"}) {
    CAPTURE(call);
    const Live before;
    const Calls calls;
    const std::string text = errors_of([&] {
      DeviceJob job(kRanks, {}, false, LogLevel::kWarning);
      fake::nccl().fail(call, 1, 2);
      take_steps(job, 20, 4);
      const Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {100}, "right", 2.0};
      job.check(task, [&](int rank) { return values_of(task.dtype, 100, rank); });
    });
    fake::nccl().fail(call, 0, 0);
    CAPTURE(text);
    CHECK(times_in(text, "tensors are packed into memory that is not NCCL's own") == 1);
    CHECK(times_in(text, std::string(call) + ": unhandled system error") == 1);
    // Nor has the other rank: NCCL wants it of all, or of none.
    CHECK(calls("registered call") == 0);
    CHECK(calls("ncclMemFree") == (call == std::string("ncclMemAlloc") ? 1 : 2));
    CHECK(Live() == before);
  }
}

TEST_CASE("devices: where NCCL is told to register nothing, nothing is given back, and the job ends well") {
  load_fakes();
  ::setenv("NCCL_LOCAL_REGISTER", "0", 1);
  const Live before;
  const Calls calls;
  {
    DeviceJob job(kRanks);
    take_steps(job, 20, 2);
  }
  ::unsetenv("NCCL_LOCAL_REGISTER");
  CHECK(calls("registered call") == 0);
  CHECK(calls("ncclCommDeregister") == 0);
  CHECK(calls("ncclCommAbort") == 0);
  CHECK(calls("ncclMemFree") == kRanks);
  CHECK(Live() == before);
}

TEST_CASE("devices: an aborted communicator takes its registrations with it") {
  load_fakes();
  const Live before;
  const Calls calls;
  {
    DeviceJob job(kRanks);
    take_steps(job, 20, 1);
    job.hub().notify_all("rank 1 was killed by signal 9 (SIGKILL)");
    std::latch told(kRanks - 1);
    on_all(kRanks, [&](int rank) {
      if (rank == 1) {
        told.wait();  // it takes no part, since the operation could be over before the others hear of it
      } else {
        FloatOp next("next", 4, 1.0F);
        CHECK(next.run(job.at(rank)).says("rank 1 was killed"));
        told.count_down();
      }
      job.job().leave(rank);
    });
  }
  CHECK(calls("ncclCommAbort") == kRanks);
  CHECK(calls("ncclCommDeregister") == 0);
  CHECK(calls("ncclMemFree") == kRanks);
  CHECK(Live() == before);
}

}  // namespace hvd::test::device_buffers_test
