// Every operation on devices, against the same on hosts.
#include <array>
#include <cstring>
#include <limits>

#include <doctest/doctest.h>

#include "tests/multi/device/device_job.h"

namespace hvd::test::device_ops_test {
namespace {

constexpr Dtype kTypes[] = {Dtype::kUint8,   Dtype::kInt8,    Dtype::kUint16,  Dtype::kInt16,
                            Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16, Dtype::kBfloat16,
                            Dtype::kFloat32, Dtype::kFloat64, Dtype::kBool};

std::function<std::vector<std::uint8_t>(int)> values(const Task& task) {
  return [task](int rank) { return values_of(task.dtype, task.bytes() / size_of(task.dtype), rank); };
}

std::string name_for(const char* what, Dtype dtype, int op) {
  return std::string(what) + " " + name_of(dtype) + " " + std::to_string(op);
}

void check_all_operations(DeviceJob& job) {
  for (const Dtype dtype : kTypes) {
    for (const int op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_AVERAGE}) {
      if (dtype == Dtype::kBool && op == HVD_AVERAGE) {
        continue;
      }
      Task task{HVD_ALLREDUCE, dtype, op, {5, 3}, name_for("reduce", dtype, op)};
      job.check(task, values(task));
      task.kind = HVD_REDUCESCATTER;
      task.name = name_for("scatter", dtype, op);
      job.check(task, values(task));
    }
    Task task{HVD_BROADCAST, dtype, HVD_SUM, {7}, name_for("send", dtype, 0)};
    task.root = job.size() - 1;
    job.check(task, values(task));
    // Each rank brings another number of rows; one brings none.
    Task gather{HVD_ALLGATHER, dtype, HVD_SUM, {}, name_for("gather", dtype, 0)};
    const auto rows = [&](int rank) { return values_of(dtype, static_cast<std::size_t>(rank) * 2, rank); };
    job.check(gather, rows, [](Task& own, int rank) { own.shape = {rank, 2}; });
    Task even{HVD_ALLGATHER, dtype, HVD_SUM, {3, 2}, name_for("gather even", dtype, 0)};
    job.check(even, values(even));
    // Rank r sends r + to rows to each.
    Task exchange{HVD_ALLTOALL, dtype, HVD_SUM, {}, name_for("exchange", dtype, 0)};
    const auto shape_it = [&](Task& own, int rank) {
      std::int64_t sum = 0;
      for (int to = 0; to < job.size(); ++to) {
        own.splits.push_back(rank + to);
        sum += rank + to;
      }
      own.shape = {sum, 3};
    };
    const auto to_send = [&](int rank) {
      Task own;
      shape_it(own, rank);
      return values_of(dtype, static_cast<std::size_t>(own.shape[0] * 3), rank);
    };
    job.check(exchange, to_send, shape_it);
  }
}

void check_scales(DeviceJob& job) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt32}) {
    for (const int kind : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
      Task task{kind, dtype, HVD_SUM, {9, 2}, name_for("scaled", dtype, kind), 2.0, 0.5};
      job.check(task, values(task));
      task.op = HVD_AVERAGE;
      task.postscale = 1.0;
      task.prescale = 4.0;
      task.name += " average";
      job.check(task, values(task));
    }
    Task in_place{HVD_ALLREDUCE, dtype, HVD_AVERAGE, {33}, name_for("in place", dtype, 0)};
    in_place.in_place = true;
    job.check(in_place, values(in_place));
    in_place.kind = HVD_BROADCAST;
    in_place.name += " broadcast";
    job.check(in_place, values(in_place));
  }
}

void check_nothing(DeviceJob& job) {
  for (const int kind : {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_REDUCESCATTER, HVD_ALLTOALL}) {
    Task task{kind, Dtype::kFloat32, HVD_SUM, {0, 4}, "nothing " + std::to_string(kind)};
    job.check(task, values(task));
  }
}

}  // namespace

TEST_CASE("devices: every operation and type gives what it gives on hosts, by NCCL and through the hosts") {
  load_fakes();
  const Live before;
  for (const bool by_nccl : {true, false}) {
    for (const int ranks : {1, 3}) {
      EngineOptions options;
      options.devices.uses_nccl.fill(by_nccl);
      const auto launches = fake::nccl().count("ncclGroupEnd");
      {
        DeviceJob job(ranks, options);
        check_all_operations(job);
        check_scales(job);
        check_nothing(job);
      }
      CHECK((fake::nccl().count("ncclGroupEnd") > launches) == by_nccl);
    }
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: Adasum of nodes is that of hosts") {
  load_fakes();
  DeviceJob job(Nodes{1, 1});
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    // Of parallel vectors it is their average, and of orthogonal ones their sum, whatever rounds.
    Task task{HVD_ALLREDUCE, dtype, HVD_ADASUM, {64}, name_for("adasum", dtype, 0)};
    job.check(task, [&](int) { return values_of(dtype, 64, 1); });
    task.name += " orthogonal";
    job.check(task, [&](int rank) {
      auto bytes = values_of(dtype, 64, 1);
      const std::size_t half = bytes.size() / 2;
      std::memset(bytes.data() + (rank == 0 ? 0 : half), 0, half);
      return bytes;
    });
  }
}

TEST_CASE(
    "devices: Adasum takes the average of a node's ranks, as Horovod does on GPUs, by NCCL and through the hosts") {
  load_fakes();
  bool by_nccl = true;
  SUBCASE("by NCCL") {}
  SUBCASE("through the hosts") {
    by_nccl = false;
  }
  EngineOptions options;
  options.devices.uses_nccl.fill(by_nccl);
  DeviceJob job(Nodes{1, 2}, options);
  const Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_ADASUM, {2}, "adasum of nodes"};
  on_all(3, [&](int rank) {
    const std::array<float, 2> values = {rank < 2 ? 1.0F : 0.0F, rank < 2 ? 0.0F : 1.0F};
    std::vector<std::uint8_t> input(sizeof(values));
    std::memcpy(input.data(), values.data(), sizeof(values));
    const Got got = run_on_device(job.at(rank), job.gpu(rank), task, input);
    // The first node has (1, 0). The second one has the average of (1, 0) and (0, 1), and not their Adasum (1, 1).
    std::array<float, 2> is{};
    HVD_CHECK(got.outcome.status == HVD_OK && got.bytes.size() == sizeof(is));
    std::memcpy(is.data(), got.bytes.data(), sizeof(is));
    HVD_CHECK(is == (std::array<float, 2>{1.0F, 0.25F}));
  });
}

TEST_CASE("devices: process sets work by themselves, split from all or made anew") {
  load_fakes();
  const Live before;
  for (const bool splits : {true, false}) {
    const auto split_calls = fake::nccl().count("ncclCommSplit");
    DeviceJob job(3);
    if (splits) {
      Task first{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {4}, "all first"};
      job.check(first, values(first));
    }
    const std::vector<std::int32_t> members = {0, 2};
    std::vector<std::int32_t> numbers(3);
    on_all(3, [&](int rank) {
      HVD_CHECK(hvd_process_set_add(job.at(rank), members.data(), 2, &numbers[static_cast<std::size_t>(rank)]) ==
                HVD_OK);
    });
    CHECK(fake::nccl().count("ncclCommSplit") - split_calls == (splits ? 3 : 0));
    Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {6}, "of two"};
    task.process_set = numbers[0];
    std::vector<Got> expected(3);
    std::vector<Got> found(3);
    on_all(3, [&](int rank) {
      if (rank != 1) {
        const auto at = static_cast<std::size_t>(rank);
        expected[at] = run_on_host(job.at(rank), task, values(task)(rank));
        found[at] = run_on_device(job.at(rank), job.gpu(rank), task, values(task)(rank));
      }
    });
    CHECK(found[0].outcome.error == "");
    CHECK(found[0] == expected[0]);
    CHECK(found[2] == expected[2]);
    Task all{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {4}, "all after"};
    job.check(all, values(all));
    on_all(3, [&](int rank) { CHECK(hvd_process_set_remove(job.at(rank), numbers[0]) == HVD_OK); });
    job.check(all, values(all));
  }
  CHECK(Live() == before);
}

TEST_CASE("devices: an average of int64 is exact, as on the host") {
  load_fakes();
  DeviceJob job(2);
  const Task task{HVD_ALLREDUCE, Dtype::kInt64, HVD_AVERAGE, {2}, "large"};
  const std::int64_t large = std::numeric_limits<std::int64_t>::max() / 2 - 10;
  const auto input = [&](int rank) {
    const std::array<std::int64_t, 2> numbers = {large + 2 * rank, (std::int64_t{1} << 60) + 1};
    std::vector<std::uint8_t> bytes(sizeof numbers);
    std::memcpy(bytes.data(), numbers.data(), sizeof numbers);
    return bytes;
  };
  job.check(task, input);
  std::vector<Got> found(2);
  on_all(2, [&](int rank) {
    found[static_cast<std::size_t>(rank)] = run_on_device(job.at(rank), job.gpu(rank), task, input(rank));
  });
  std::array<std::int64_t, 2> averages{};
  REQUIRE(found[0].bytes.size() == sizeof averages);
  std::memcpy(averages.data(), found[0].bytes.data(), sizeof averages);
  CHECK(averages == std::array<std::int64_t, 2>{large + 1, (std::int64_t{1} << 60) + 1});
}

TEST_CASE("devices: a tensor on a host and one on a device do not meet; all ranks are told who has which") {
  load_fakes();
  DeviceJob job(2);
  std::vector<Outcome> outcomes(2);
  on_all(2, [&](int rank) {
    const Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {4}, "mixed"};
    const auto input = values_of(task.dtype, 4, rank);
    Task own = task;
    if (rank == 0) {
      std::vector<std::uint8_t> memory = input;
      const hvd_op op = own.op_on(memory.data(), memory.data());
      std::int64_t handle = 0;
      HVD_CHECK(hvd_enqueue(job.at(0), &op, &handle) == HVD_OK);
      outcomes[0] = outcome(hvd_wait(job.at(0), handle));
    } else {
      outcomes[1] = run_on_device(job.at(1), job.gpu(1), own, input).outcome;
    }
  });
  for (const Outcome& told : outcomes) {
    CHECK(told.status == HVD_MISMATCH);
    CHECK(
        told.says("Mismatched CPU/GPU device selection: rank 0 specified device CPU, but rank 1 specified device "
                  "GPU (tensor 'mixed')"));
  }
}

TEST_CASE("devices: a rank that has joined stands in with zeros, also one that has used no device") {
  load_fakes();
  const Live before;
  {
    DeviceJob job(3);
    std::vector<Got> found(3);
    std::vector<Outcome> joins(3);
    Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_SUM, {5}, "last"};
    SUBCASE("of a tensor that is reduced where it is") {}
    SUBCASE("of one that is scaled first, and so packed") {
      task.prescale = 0.5;
    }
    const auto ones = [] {
      std::vector<std::uint8_t> bytes(20);
      put_values<float>(bytes, 5, 0, false);
      return bytes;
    }();
    on_all(3, [&](int rank) {
      if (rank != 2) {
        found[static_cast<std::size_t>(rank)] = run_on_device(job.at(rank), job.gpu(rank), task, ones);
      }
      hvd_op join = HVD_OP_INIT;
      join.kind = HVD_JOIN;
      std::int64_t handle = 0;
      joins[static_cast<std::size_t>(rank)] = outcome(hvd_execute(job.at(rank), &join, &handle));
      hvd_release(job.at(rank), handle);
    });
    std::vector<float> sums(5);
    for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
      CHECK(found[rank].outcome.error == "");
      REQUIRE(found[rank].bytes.size() == 20);
      std::memcpy(sums.data(), found[rank].bytes.data(), 20);
      float one = 0;
      std::memcpy(&one, ones.data(), sizeof one);
      CHECK(sums[0] == 2 * one * static_cast<float>(task.prescale));
    }
    for (const Outcome& join : joins) {
      CHECK(join.error == "");
    }
  }
  CHECK(Live() == before);
}

}  // namespace hvd::test::device_ops_test
