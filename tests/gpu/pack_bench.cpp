// Times the packing and unpacking of ResNet-50's 161 gradients on a GPU, against one copy of as many bytes within it
// and against 161 copies. Prints one JSON object: microseconds, medians of the repeats. Usage: hvd_gpu_bench [REPEATS
// [SHRINK]]      SHRINK: sizes are divided by it, for a try without a GPU
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

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

class Timer {
 public:
  static Result<Timer> make(const std::shared_ptr<Device>& device, int repeats) {
    Timer made;
    made.device_ = device;
    made.repeats_ = repeats;
    HVD_TRY_ASSIGN(made.stream_, Stream::make(device));
    HVD_TRY_ASSIGN(made.begin_, Event::make(device, true));
    HVD_TRY_ASSIGN(made.end_, Event::make(device, true));
    return made;
  }
  // The median, in microseconds, of what `work` puts on the stream; the first tenth warms up.
  Result<double> time(const std::function<Result<void>(StreamHandle)>& work) {
    std::vector<double> times;
    for (int i = -repeats_ / 10 - 1; i < repeats_; ++i) {
      HVD_TRY(begin_.record(stream_.handle()));
      HVD_TRY(work(stream_.handle()));
      HVD_TRY(end_.record(stream_.handle()));
      HVD_TRY(stream_.synchronize());
      HVD_TRY_ASSIGN(const float milliseconds, device_->elapsed_ms(begin_.handle(), end_.handle()));
      if (i >= 0) {
        times.push_back(static_cast<double>(milliseconds) * 1000.0);
      }
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  std::shared_ptr<Device> device_;
  int repeats_ = 1;
  Stream stream_;
  Event begin_;
  Event end_;
};

Result<std::string> measure(int repeats, std::size_t shrink) {
  HVD_TRY_ASSIGN(const auto device, Device::open(0));
  HVD_TRY_ASSIGN(const auto tensors, make_tensors(device, shrink));
  HVD_TRY_ASSIGN(const auto buffer, DeviceMemory::make(device, packed_bytes(tensors.pieces, Dtype::kFloat32)));
  HVD_TRY_ASSIGN(const auto other, DeviceMemory::make(device, tensors.size_bytes));
  HVD_TRY_ASSIGN(auto timer, Timer::make(device, repeats));
  DeviceKernels kernels(device);
  const auto& pieces = tensors.pieces;
  const auto move = [&](bool packs, Dtype packed) {
    return timer.time([&](StreamHandle stream) {
      return packs ? kernels.pack(stream, pieces, buffer.data(), Dtype::kFloat32, packed, 1.0)
                   : kernels.unpack(stream, pieces, buffer.data(), packed, Dtype::kFloat32, 1.0);
    });
  };
  HVD_TRY_ASSIGN(const double one_copy, timer.time([&](StreamHandle stream) {
    return device->copy(other.data(), tensors.memory.data(), tensors.size_bytes, stream);
  }));
  HVD_TRY_ASSIGN(const double copies, timer.time([&](StreamHandle stream) -> Result<void> {
    auto* to = static_cast<std::uint8_t*>(other.data());
    for (const DevicePiece& piece : pieces) {
      HVD_TRY(device->copy(to, piece.input, piece.count * sizeof(float), stream));
      to += piece.count * sizeof(float);
    }
    return {};
  }));
  HVD_TRY_ASSIGN(const double pack, move(true, Dtype::kFloat32));
  HVD_TRY_ASSIGN(const double unpack, move(false, Dtype::kFloat32));
  HVD_TRY_ASSIGN(const double pack_f16, move(true, Dtype::kFloat16));
  HVD_TRY_ASSIGN(const double unpack_f16, move(false, Dtype::kFloat16));
  HVD_TRY_ASSIGN(const double pack_bf16, move(true, Dtype::kBfloat16));
  HVD_TRY_ASSIGN(const double unpack_bf16, move(false, Dtype::kBfloat16));
  const auto entry = [](const char* name, double value) {
    return std::string(", \"") + name + "\": " + std::to_string(value);
  };
  return "{\"device\": \"" + device->name() + "\", \"bytes\": " + std::to_string(tensors.size_bytes) +
         entry("one copy", one_copy) + entry("161 copies", copies) + entry("pack float32", pack) +
         entry("unpack float32", unpack) + entry("pack float16", pack_f16) + entry("unpack float16", unpack_f16) +
         entry("pack bfloat16", pack_bf16) + entry("unpack bfloat16", unpack_bf16) + "}";
}

}  // namespace
}  // namespace hvd

int main(int count, char** arguments) {
  if (const auto found = hvd::Device::describe_all(); !found.ok()) {
    std::printf("skipped: %s\n", found.error().message().c_str());
    return hvd::kSkipped;
  }
  const int repeats = count > 1 ? std::max(std::atoi(arguments[1]), 1) : 100;
  const auto shrink = static_cast<std::size_t>(count > 2 ? std::max(std::atoi(arguments[2]), 1) : 1);
  const auto measured = hvd::measure(repeats, shrink);
  std::printf("%s\n", measured.ok() ? measured.value().c_str() : measured.error().message().c_str());
  return measured.ok() ? 0 : 1;
}
