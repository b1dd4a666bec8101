// Times the packing and unpacking of ResNet-50's 161 gradients on a GPU, against one copy of as many bytes within it
// and against 161 copies. Prints one JSON object: {"device", "bytes", "times": by name, microseconds, quartiles of the
// repeats, "late": by name, in how many repeats the host's time may be in the figure too}. Usage: hvd_gpu_bench
// [REPEATS [SHRINK]]      SHRINK: sizes are divided by it, for a try without a GPU
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/device/kernels.h"
#include "tests/unit/runtime/device/resnet50.h"

namespace hvd {
namespace {

constexpr int kSkipped = 77;

// Of the sizes, from the beginning of memory; each tensor begins at a multiple of 512 bytes, as torch's do.
struct Tensors {
  DeviceMemory memory;
  std::vector<DevicePiece> pieces;
  std::size_t size_bytes = 0;
};

Result<Tensors> make_tensors(const std::shared_ptr<Device>& device, std::size_t shrink) {
  static constexpr std::size_t kAlignment = 512;
  Tensors made;
  std::vector<std::size_t> offsets;
  std::size_t end = 0;
  const auto sizes = resnet50_sizes();
  for (const std::size_t size : sizes) {
    offsets.push_back(end);
    end += (std::max<std::size_t>(size / shrink, 1) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }
  HVD_TRY_ASSIGN(made.memory, DeviceMemory::make(device, end));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto* data = static_cast<std::uint8_t*>(made.memory.data()) + offsets[i];
    made.pieces.push_back({data, data, std::max<std::size_t>(sizes[i] / shrink, 1)});
    made.size_bytes += made.pieces.back().count * sizeof(float);
  }
  return made;
}

// What is timed, by its name.
struct Work {
  const char* name;
  std::function<Result<void>(StreamHandle)> enqueue;
  bool is_led = true;  // the stream is busy when it comes, so that the host's time for it is not in the figure

  std::vector<double> times = {};  // microseconds
  int late = 0;                    // how often the stream was idle again before the host had enqueued all
};

class Timer {
 public:
  // `lead_bytes`: of the copies that keep the stream busy. They have memory of their own, so that no work finds more of
  // what it moves in the device's cache than another.
  static Result<Timer> make(const std::shared_ptr<Device>& device, std::size_t lead_bytes) {
    Timer made;
    made.device_ = device;
    HVD_TRY_ASSIGN(made.stream_, DeviceStream::make(device));
    HVD_TRY_ASSIGN(made.begin_, Event::make(device, true));
    HVD_TRY_ASSIGN(made.end_, Event::make(device, true));
    HVD_TRY_ASSIGN(made.from_, DeviceMemory::make(device, lead_bytes));
    HVD_TRY_ASSIGN(made.to_, DeviceMemory::make(device, lead_bytes));
    return made;
  }

  // In turns, so that clocks and whatever else drifts are the same for all; the first tenth of the repeats warms up.
  Result<void> time(std::vector<Work>& works, int repeats) {
    HVD_TRY(warm_up());
    for (int i = -repeats / 10 - 1; i < repeats; ++i) {
      for (Work& work : works) {
        HVD_TRY(time_once(work, i >= 0));
      }
    }
    return {};
  }

 private:
  // An idle device's clocks are low, and take their time to rise.
  Result<void> warm_up() {
    const Deadline end = Deadline::after(std::chrono::milliseconds(300));
    while (!end.has_passed()) {
      HVD_TRY(lead());
      HVD_TRY(stream_.synchronize());
    }
    return {};
  }

  // Longer than a host takes to enqueue 161 copies: about a millisecond, on the fastest devices of 2024.
  Result<void> lead() {
    static constexpr int kCopies = 20;
    for (int i = 0; i < kCopies; ++i) {
      HVD_TRY(device_->copy(to_.data(), from_.data(), from_.size_bytes(), stream_.handle()));
    }
    return {};
  }

  Result<void> time_once(Work& work, bool counts) {
    if (work.is_led) {
      HVD_TRY(lead());
    }
    HVD_TRY(begin_.record(stream_.handle()));
    HVD_TRY(work.enqueue(stream_.handle()));
    HVD_TRY(end_.record(stream_.handle()));
    HVD_TRY_ASSIGN(const bool has_begun, begin_.is_done());
    HVD_TRY(stream_.synchronize());
    HVD_TRY_ASSIGN(const float milliseconds, device_->elapsed_ms(begin_.handle(), end_.handle()));
    if (counts) {
      work.times.push_back(static_cast<double>(milliseconds) * 1000.0);
      work.late += work.is_led && has_begun ? 1 : 0;
    }
    return {};
  }

  std::shared_ptr<Device> device_;
  DeviceStream stream_;
  Event begin_;
  Event end_;
  DeviceMemory from_;
  DeviceMemory to_;
};

// The memory that is moved, and who moves it.
struct Bench {
  std::shared_ptr<Device> device;
  Tensors tensors;
  DeviceMemory buffer;  // packed
  DeviceMemory other;
  DeviceKernels kernels;

  static Result<Bench> make(const std::shared_ptr<Device>& device, std::size_t shrink) {
    HVD_TRY_ASSIGN(auto tensors, make_tensors(device, shrink));
    HVD_TRY_ASSIGN(auto buffer, DeviceMemory::make(device, packed_bytes(tensors.pieces, Dtype::kFloat32)));
    HVD_TRY_ASSIGN(auto other, DeviceMemory::make(device, tensors.size_bytes));
    return Bench{device, std::move(tensors), std::move(buffer), std::move(other), DeviceKernels(device)};
  }

  Result<void> copy(StreamHandle stream) {
    return device->copy(other.data(), tensors.memory.data(), tensors.size_bytes, stream);
  }
  Result<void> copy_each(StreamHandle stream) {
    auto* to = static_cast<std::uint8_t*>(other.data());
    for (const DevicePiece& piece : tensors.pieces) {
      HVD_TRY(device->copy(to, piece.input, piece.count * sizeof(float), stream));
      to += piece.count * sizeof(float);
    }
    return {};
  }
  Result<void> pack(StreamHandle stream, Dtype packed) {
    return kernels.pack(stream, tensors.pieces, buffer.data(), Dtype::kFloat32, packed, 1.0);
  }
  Result<void> unpack(StreamHandle stream, Dtype packed, Scale scale = {}) {
    return kernels.unpack(stream, tensors.pieces, buffer.data(), packed, Dtype::kFloat32, scale);
  }
};

std::vector<Work> works_of(Bench& bench) {
  static constexpr double kRanks = 3.0;  // as an average over so many divides
  const auto each = [&bench](StreamHandle stream) { return bench.copy_each(stream); };
  const auto pack = [&bench](Dtype packed) {
    return [&bench, packed](StreamHandle stream) { return bench.pack(stream, packed); };
  };
  const auto unpack = [&bench](Dtype packed, Scale scale = {}) {
    return [&bench, packed, scale](StreamHandle stream) { return bench.unpack(stream, packed, scale); };
  };
  return {{"one copy", [&bench](StreamHandle stream) { return bench.copy(stream); }},
          {"pack float32", pack(Dtype::kFloat32)},
          {"unpack float32", unpack(Dtype::kFloat32)},
          {"unpack float32, divided", unpack(Dtype::kFloat32, Scale(1.0, kRanks))},
          {"pack float16", pack(Dtype::kFloat16)},
          {"unpack float16", unpack(Dtype::kFloat16)},
          {"pack bfloat16", pack(Dtype::kBfloat16)},
          {"unpack bfloat16", unpack(Dtype::kBfloat16)},
          {"161 copies", each},
          {"161 copies, idle stream", each, false}};
}

// [lower quartile, median, upper quartile].
std::string quartiles(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](std::size_t quarter) { return std::to_string(times[(times.size() - 1) * quarter / 4]); };
  return "[" + at(1) + ", " + at(2) + ", " + at(3) + "]";
}

Result<std::string> measure(int repeats, std::size_t shrink) {
  HVD_TRY_ASSIGN(const auto device, Device::open(0));
  HVD_TRY_ASSIGN(auto bench, Bench::make(device, shrink));
  HVD_TRY_ASSIGN(auto timer, Timer::make(device, bench.tensors.size_bytes));
  auto works = works_of(bench);
  HVD_TRY(timer.time(works, repeats));
  std::string times;
  std::string late;
  for (const Work& work : works) {
    const std::string name = (times.empty() ? "\"" : ", \"") + std::string(work.name) + "\": ";
    times += name + quartiles(work.times);
    late += name + std::to_string(work.late);
  }
  return "{\"device\": \"" + device->info().name + "\", \"bytes\": " + std::to_string(bench.tensors.size_bytes) +
         ", \"times\": {" + times + "}, \"late\": {" + late + "}}";
}

}  // namespace
}  // namespace hvd

int main(int count, char** arguments) {
  if (const auto found = hvd::Device::describe_all(); !found.ok()) {
    std::printf("skipped: %s\n", found.error().message().c_str());
    return hvd::kSkipped;
  }
  const auto number_at = [&](int place, long otherwise) {
    return count > place ? std::max(std::strtol(arguments[place], nullptr, 10), 1L) : otherwise;
  };
  const auto repeats = static_cast<int>(number_at(1, 100));
  const auto shrink = static_cast<std::size_t>(number_at(2, 1));
  const auto measured = hvd::measure(repeats, shrink);
  std::printf("%s\n", measured.ok() ? measured.value().c_str() : measured.error().message().c_str());
  return measured.ok() ? 0 : 1;
}
