// DeviceJob: an EngineJob whose ranks have a fake GPU each, a stream on it, and tensors there.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <stdlib.h>

#include "runtime/core/dtype.h"
#include "runtime/device/device.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/stream.h"
#include "tests/multi/engine/engine_job.h"
#include "tests/support/fake_cuda/fake_control.h"
#include "tests/support/fake_nccl/fake_control.h"

namespace hvd::test {

constexpr int kDevices = 4;

// Before the first use of a device: the fakes are what this process finds under the libraries' names.
inline void load_fakes() {
  static const bool is_loaded = [] {
    ::setenv("FAKE_CUDA_DEVICES", std::to_string(kDevices).c_str(), 1);
    static_cast<void>(fake::cuda());
    static_cast<void>(fake::nccl());
    return true;
  }();
  static_cast<void>(is_loaded);
}

// A rank's device and a stream of the program's there.
struct Gpu {
  explicit Gpu(int ordinal) : device(Device::open(ordinal).value()), stream(DeviceStream::make(device).value()) {}
  std::shared_ptr<Device> device;
  DeviceStream stream;
};

// Bytes on a device, which come there on the rank's stream.
class DeviceTensor {
 public:
  DeviceTensor(Gpu& gpu, std::vector<std::uint8_t> bytes)
      : gpu_(gpu), host_(std::move(bytes)), memory_(DeviceMemory::make(gpu.device, room()).value()) {
    fill();
  }
  void fill() {
    if (!host_.empty()) {
      HVD_CHECK(gpu_.device->copy(memory_.data(), host_.data(), host_.size(), gpu_.stream.handle()).ok());
    }
  }
  // Blocks.
  [[nodiscard]] std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> out(host_.size());
    if (!out.empty()) {
      HVD_CHECK(gpu_.device->copy(out.data(), memory_.data(), out.size(), gpu_.stream.handle()).ok());
      HVD_CHECK(gpu_.device->synchronize(gpu_.stream.handle()).ok());
    }
    return out;
  }
  [[nodiscard]] void* data() const { return memory_.data(); }

 private:
  [[nodiscard]] std::size_t room() const { return host_.empty() ? 1 : host_.size(); }

  Gpu& gpu_;
  std::vector<std::uint8_t> host_;
  DeviceMemory memory_;
};

// What is to be done; the same on the host and on a device.
struct Task {
  int kind = HVD_ALLREDUCE;
  Dtype dtype = Dtype::kFloat32;
  int op = HVD_SUM;
  std::vector<std::int64_t> shape;
  std::string name;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  int process_set = 0;
  std::vector<std::int32_t> splits{};
  bool in_place = false;

  [[nodiscard]] std::size_t bytes() const {
    std::size_t all = size_of(dtype);
    for (const std::int64_t extent : shape) {
      all *= static_cast<std::size_t>(extent);
    }
    return all;
  }
  [[nodiscard]] bool is_cut() const {
    return kind == HVD_ALLGATHER || kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER;
  }
  [[nodiscard]] hvd_op op_on(const void* input, void* output) const {
    hvd_op made = HVD_OP_INIT;
    made.kind = kind;
    made.dtype = static_cast<int>(dtype);
    made.reduce_op = op;
    made.ndim = static_cast<int>(shape.size());
    made.shape = shape.data();
    made.name = name.c_str();
    made.input = input;
    made.output = is_cut() ? nullptr : output;
    made.prescale = prescale;
    made.postscale = postscale;
    made.root_rank = root;
    made.process_set = process_set;
    made.splits = splits.empty() ? nullptr : splits.data();
    made.split_count = static_cast<int>(splits.size());
    return made;
  }
};

// Small whole numbers, which every type has and which no sum of a few ranks' rounds; other ones on each rank.
inline std::vector<std::uint8_t> values_of(Dtype dtype, std::size_t count, int seed);

struct Got {
  Outcome outcome;
  std::vector<std::uint8_t> bytes;
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> splits{};

  bool operator==(const Got& other) const {
    return outcome.status == other.outcome.status && bytes == other.bytes && shape == other.shape &&
           splits == other.splits;
  }
};

inline Got result_of(hvd_ctx* ctx, std::int64_t handle, Gpu* gpu) {
  Got got;
  hvd_output out = HVD_OUTPUT_INIT;
  got.outcome = outcome(hvd_result(ctx, handle, &out));
  if (got.outcome.status != HVD_OK) {
    return got;
  }
  got.shape.assign(out.shape, out.shape + out.ndim);
  got.splits.assign(out.received_splits, out.received_splits + out.received_count);
  got.bytes.resize(static_cast<std::size_t>(out.size_bytes));
  void* stream = gpu == nullptr ? nullptr : gpu->stream.handle();
  got.outcome = outcome(hvd_fetch(ctx, handle, got.bytes.data(), out.size_bytes, stream));
  if (gpu != nullptr) {
    HVD_CHECK(gpu->device->synchronize(gpu->stream.handle()).ok());
  }
  return got;
}

// Runs the task on the host, with these bytes as this rank's input.
inline Got run_on_host(hvd_ctx* ctx, Task task, std::vector<std::uint8_t> input) {
  task.name += " on hosts";
  std::vector<std::uint8_t> output(input.size(), 0xee);
  const hvd_op op = task.op_on(input.data(), task.in_place ? input.data() : output.data());
  std::int64_t handle = 0;
  Got got;
  got.outcome = outcome(hvd_execute(ctx, &op, &handle));
  if (got.outcome.status == HVD_OK) {
    got = task.is_cut() ? result_of(ctx, handle, nullptr) : Got{{}, task.in_place ? input : output, task.shape, {}};
  }
  if (handle != 0) {
    HVD_CHECK(hvd_release(ctx, handle) == HVD_OK);
  }
  return got;
}

// The same on the rank's device; input and output are ready, and looked at, on its stream.
inline Got run_on_device(hvd_ctx* ctx, Gpu& gpu, const Task& task, const std::vector<std::uint8_t>& input) {
  DeviceTensor in(gpu, input);
  DeviceTensor out(gpu, std::vector<std::uint8_t>(input.size(), 0xee));
  hvd_op op = task.op_on(in.data(), task.in_place ? in.data() : out.data());
  op.device = gpu.device->info().ordinal;
  op.stream = gpu.stream.handle();
  std::int64_t handle = 0;
  Got got;
  got.outcome = outcome(hvd_enqueue(ctx, &op, &handle));
  if (got.outcome.status == HVD_OK) {
    got.outcome = outcome(hvd_wait(ctx, handle));
  }
  if (got.outcome.status == HVD_OK) {
    got = task.is_cut() ? result_of(ctx, handle, &gpu) : Got{{}, (task.in_place ? in : out).bytes(), task.shape, {}};
  }
  if (handle != 0) {
    HVD_CHECK(hvd_release(ctx, handle) == HVD_OK);
  }
  return got;
}

template <typename T>
void put_values(std::vector<std::uint8_t>& bytes, std::size_t count, int seed, bool is_bool) {
  for (std::size_t i = 0; i < count; ++i) {
    const int number =
        static_cast<int>((i * 7 + static_cast<std::size_t>(seed) * 3) % (is_bool ? 2 : 5)) + (is_bool ? 0 : 1);
    const T value = static_cast<T>(number);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

inline std::vector<std::uint8_t> values_of(Dtype dtype, std::size_t count, int seed) {
  std::vector<std::uint8_t> bytes(count * size_of(dtype));
  switch (dtype) {
    case Dtype::kFloat32:
      put_values<float>(bytes, count, seed, false);
      break;
    case Dtype::kFloat64:
      put_values<double>(bytes, count, seed, false);
      break;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      for (std::size_t i = 0; i < count; ++i) {
        // 1, 2 or 4: their exponents
        const auto power = static_cast<unsigned>((i + static_cast<std::size_t>(seed)) % 3);
        const auto half =
            static_cast<std::uint16_t>(dtype == Dtype::kFloat16 ? (15U + power) << 10U : (127U + power) << 7U);
        std::memcpy(bytes.data() + i * 2, &half, 2);
      }
      break;
    case Dtype::kInt64:
      put_values<std::int64_t>(bytes, count, seed, false);
      break;
    case Dtype::kInt32:
      put_values<std::int32_t>(bytes, count, seed, false);
      break;
    case Dtype::kInt16:
    case Dtype::kUint16:
      put_values<std::int16_t>(bytes, count, seed, false);
      break;
    default:
      put_values<std::int8_t>(bytes, count, seed, dtype == Dtype::kBool);
      break;
  }
  return bytes;
}

class DeviceJob {
 public:
  // The device of each rank is of its number, or they share one.
  explicit DeviceJob(int ranks, EngineOptions options = {}, bool shares = false, LogLevel log_level = LogLevel::kError)
      : DeviceJob(Nodes{ranks}, std::move(options), shares, log_level) {}
  explicit DeviceJob(const Nodes& nodes, EngineOptions options = {}, bool shares = false,
                     LogLevel log_level = LogLevel::kError)
      : job_(nodes, std::move(options), log_level) {
    load_fakes();
    for (int rank = 0; rank < job_.size(); ++rank) {
      gpus_.push_back(std::make_unique<Gpu>(shares ? 0 : rank));
    }
  }
  [[nodiscard]] hvd_ctx* at(int rank) const { return job_.at(rank); }
  [[nodiscard]] Gpu& gpu(int rank) { return *gpus_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const { return job_.size(); }
  [[nodiscard]] MemoryHub& hub() { return job_.hub(); }
  [[nodiscard]] EngineJob& job() { return job_; }

  // Leaves on all ranks.
  void stop() { job_.stop(); }
  // The task on hosts and on devices: the same results, on every rank.
  void check(const Task& task, const std::function<std::vector<std::uint8_t>(int rank)>& input,
             const std::function<void(Task&, int rank)>& change = {}) {
    std::vector<Got> expected(static_cast<std::size_t>(size()));
    std::vector<Got> found(expected.size());
    on_all(size(), [&](int rank) {
      Task own = task;
      if (change) {
        change(own, rank);
      }
      const auto at_rank = static_cast<std::size_t>(rank);
      expected[at_rank] = run_on_host(at(rank), own, input(rank));
      found[at_rank] = run_on_device(at(rank), gpu(rank), own, input(rank));
    });
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      CAPTURE(rank);
      CAPTURE(task.name);
      CHECK(expected[rank].outcome.error == "");
      CHECK(found[rank].outcome.error == "");
      CHECK(found[rank] == expected[rank]);
    }
  }

 private:
  EngineJob job_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

// Of what the fakes count as made and not given back.
struct Live {
  std::int64_t memory = fake::cuda().count("live memory");
  std::int64_t pinned = fake::cuda().count("live pinned memory");
  std::int64_t streams = fake::cuda().count("live stream");
  std::int64_t events = fake::cuda().count("live event");
  std::int64_t comms = fake::nccl().count("live comm");
  std::int64_t registrations = fake::nccl().count("live registration");

  bool operator==(const Live&) const = default;
};

}  // namespace hvd::test
