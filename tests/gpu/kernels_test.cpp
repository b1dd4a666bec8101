// The kernels on a GPU, against references that the host computes in float64, on inputs that are new in each run.
#include "runtime/device/kernels.h"

#include <cmath>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "runtime/core/float16.h"

namespace hvd::kernels_test {
namespace {

template <typename Value>
Value take(Result<Value> result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
  return std::move(result).value();
}
void take(const Result<void>& result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
}

// One element as a number, and back as the nearest of the type.
double number_of(const std::uint8_t* at, Dtype dtype) {
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case Dtype::kUint8:
      return as(std::uint8_t{});
    case Dtype::kInt8:
      return as(std::int8_t{});
    case Dtype::kUint16:
      return as(std::uint16_t{});
    case Dtype::kInt16:
      return as(std::int16_t{});
    case Dtype::kInt32:
      return as(std::int32_t{});
    case Dtype::kInt64:
      return static_cast<double>(as(std::int64_t{}));
    case Dtype::kFloat16:
      return static_cast<double>(float16_to_float(as(std::uint16_t{})));
    case Dtype::kBfloat16:
      return static_cast<double>(bfloat16_to_float(as(std::uint16_t{})));
    case Dtype::kFloat32:
      return static_cast<double>(as(float{}));
    case Dtype::kFloat64:
      return as(double{});
    case Dtype::kBool:
      return as(std::uint8_t{}) != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

void write_number(std::uint8_t* at, Dtype dtype, double value) {
  const auto put = [&](auto stored) { std::memcpy(at, &stored, sizeof(stored)); };
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kBool:
      return put(static_cast<std::uint8_t>(value));
    case Dtype::kInt8:
      return put(static_cast<std::int8_t>(value));
    case Dtype::kUint16:
      return put(static_cast<std::uint16_t>(value));
    case Dtype::kInt16:
      return put(static_cast<std::int16_t>(value));
    case Dtype::kInt32:
      return put(static_cast<std::int32_t>(value));
    case Dtype::kInt64:
      return put(static_cast<std::int64_t>(value));
    case Dtype::kFloat16:
      return put(float_to_float16(static_cast<float>(value)));
    case Dtype::kBfloat16:
      return put(float_to_bfloat16(static_cast<float>(value)));
    case Dtype::kFloat32:
      return put(static_cast<float>(value));
    case Dtype::kFloat64:
      return put(value);
  }
}

// Of a unit in the last place, relative.
double precision_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 1.0 / 1024.0;
    case Dtype::kBfloat16:
      return 1.0 / 128.0;
    case Dtype::kFloat32:
      return 1.0 / 8388608.0;
    default:
      return 1e-15;
  }
}

class Gpu {
 public:
  Gpu() : device(take(Device::open(0))), stream(take(DeviceStream::make(device))), kernels(device) {
    seed = std::random_device{}();
    random.seed(seed);
  }

  DeviceMemory memory(std::size_t size_bytes) { return take(DeviceMemory::make(device, size_bytes)); }
  DeviceMemory copy_of(const std::vector<std::uint8_t>& bytes) {
    auto made = memory(bytes.size());
    take(device->copy(made.data(), bytes.data(), bytes.size(), stream.handle()));
    take(stream.synchronize());
    return made;
  }
  std::vector<std::uint8_t> bytes_of(const DeviceMemory& from) {
    std::vector<std::uint8_t> bytes(from.size_bytes());
    take(device->copy(bytes.data(), from.data(), bytes.size(), stream.handle()));
    take(stream.synchronize());
    return bytes;
  }
  double value(Dtype dtype) {
    if (dtype == Dtype::kBool) {
      return static_cast<double>(random() % 2);
    }
    if (!is_floating(dtype)) {
      return static_cast<double>(random() % 100);
    }
    return std::normal_distribution<double>(0.0, 3.0)(random);
  }

  std::shared_ptr<Device> device;
  DeviceStream stream;
  DeviceKernels kernels;
  std::mt19937 random;
  unsigned seed = 0;
};

// Packs random pieces, looks at the buffer, and unpacks them again.
void check_round(Gpu& gpu, Dtype own, Dtype packed, Scale scale, std::size_t pieces_count) {
  const std::size_t own_bytes = size_of(own);
  std::vector<std::size_t> counts;
  std::vector<std::size_t> places;  // bytes from the beginning
  std::size_t end = 0;
  for (std::size_t i = 0; i < pieces_count; ++i) {
    counts.push_back(gpu.random() % 8 == 0 ? gpu.random() % 70000 : gpu.random() % 300);
    end += own_bytes * (gpu.random() % 5);  // some are aligned, most are not
    places.push_back(end);
    end += counts.back() * own_bytes;
  }
  end += kPackGrain;
  std::vector<std::uint8_t> host(end);
  for (std::size_t i = 0; i < pieces_count; ++i) {
    for (std::size_t e = 0; e < counts[i]; ++e) {
      write_number(host.data() + places[i] + e * own_bytes, own, gpu.value(own));
    }
  }
  const auto inputs = gpu.copy_of(host);
  const auto outputs = gpu.copy_of(std::vector<std::uint8_t>(end, 0xA5));
  std::vector<DevicePiece> pieces;
  for (std::size_t i = 0; i < pieces_count; ++i) {
    pieces.push_back({static_cast<const std::uint8_t*>(inputs.data()) + places[i],
                      static_cast<std::uint8_t*>(outputs.data()) + places[i], counts[i]});
  }
  const auto buffer = gpu.copy_of(std::vector<std::uint8_t>(packed_bytes(pieces, packed) + kPackGrain, 0xA5));
  take(gpu.kernels.pack(gpu.stream.handle(), pieces, buffer.data(), own, packed, scale));
  take(gpu.kernels.unpack(gpu.stream.handle(), pieces, buffer.data(), packed, own, 1.0));
  const auto in_buffer = gpu.bytes_of(buffer);
  const auto unpacked = gpu.bytes_of(outputs);

  std::size_t wrong = 0;
  std::size_t offset = 0;
  std::vector<bool> is_written(end, false);
  const double tolerance =
      std::max(precision_of(packed), precision_of(own)) * (own == packed && scale.is_one() ? 0.0 : 1.0);
  for (std::size_t i = 0; i < pieces_count; ++i) {
    for (std::size_t e = 0; e < counts[i]; ++e) {
      double exact = number_of(host.data() + places[i] + e * own_bytes, own) * scale.factor / scale.divisor;
      if (!is_floating(own)) {
        exact = std::trunc(exact);
      }
      const double is = number_of(in_buffer.data() + offset + e * size_of(packed), packed);
      const double back = number_of(unpacked.data() + places[i] + e * own_bytes, own);
      wrong += std::fabs(is - exact) > tolerance * std::fabs(exact) + 1e-7 * (tolerance > 0.0 ? 1.0 : 0.0) ? 1U : 0U;
      wrong += std::fabs(back - is) > precision_of(own) * std::fabs(is) ? 1U : 0U;
    }
    for (std::size_t b = 0; b < counts[i] * own_bytes; ++b) {
      is_written[places[i] + b] = true;
    }
    const std::size_t next = offset + packed_bytes(counts[i], packed);
    for (std::size_t b = offset + counts[i] * size_of(packed); b < next; ++b) {
      wrong += in_buffer[b] != 0 ? 1U : 0U;
    }
    offset = next;
  }
  for (std::size_t b = 0; b < end; ++b) {
    wrong += !is_written[b] && unpacked[b] != 0xA5 ? 1U : 0U;
  }
  for (std::size_t b = offset; b < in_buffer.size(); ++b) {
    wrong += in_buffer[b] != 0xA5 ? 1U : 0U;
  }
  CHECK_MESSAGE(wrong == 0, name_of(own), " as ", name_of(packed), " scale ", scale.factor, " / ", scale.divisor,
                " of ", pieces_count, " pieces, seed ", gpu.seed);
}

}  // namespace

TEST_CASE("gpu: pieces of every type are packed, scaled and unpacked") {
  Gpu gpu;
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    for (const Scale scale : {Scale(1.0), Scale(0.5), Scale(1.0, 3.0)}) {
      check_round(gpu, dtype, dtype, scale, 20);
      check_round(gpu, dtype, dtype, scale, 300);
    }
  }
}

TEST_CASE("gpu: float32 is cast to both of 16 bits and back") {
  Gpu gpu;
  for (const Dtype packed : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const Scale scale : {Scale(1.0), Scale(1.0 / 3.0), Scale(1.0, 3.0)}) {
      check_round(gpu, Dtype::kFloat32, packed, scale, 20);
      check_round(gpu, Dtype::kFloat32, packed, scale, 161);
    }
  }
}

TEST_CASE("gpu: Adasum is that of float64") {
  Gpu gpu;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    const std::size_t count = 1 + gpu.random() % 200000;
    std::vector<std::vector<double>> exact(2, std::vector<double>(count));
    std::vector<DeviceMemory> memory;
    std::vector<void*> vectors;
    for (auto& vector : exact) {
      std::vector<std::uint8_t> bytes(count * size_of(dtype));
      for (std::size_t i = 0; i < count; ++i) {
        write_number(bytes.data() + i * size_of(dtype), dtype, gpu.value(dtype) + 1.0);
        vector[i] = number_of(bytes.data() + i * size_of(dtype), dtype);
      }
      memory.push_back(gpu.copy_of(bytes));
      vectors.push_back(memory.back().data());
    }
    take(gpu.kernels.adasum(gpu.stream.handle(), vectors, count, dtype));
    const auto result = gpu.bytes_of(memory[0]);
    double aa = 0.0;
    double ab = 0.0;
    double bb = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      aa += exact[0][i] * exact[0][i];
      ab += exact[0][i] * exact[1][i];
      bb += exact[1][i] * exact[1][i];
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double wanted = (1.0 - ab / (2.0 * aa)) * exact[0][i] + (1.0 - ab / (2.0 * bb)) * exact[1][i];
      const double is = number_of(result.data() + i * size_of(dtype), dtype);
      wrong += std::fabs(is - wanted) > precision_of(dtype) * std::fabs(wanted) + 1e-7 ? 1U : 0U;
    }
    CHECK_MESSAGE(wrong == 0, name_of(dtype), " of ", count, ", seed ", gpu.seed);
  }
}

TEST_CASE("gpu: an average of vectors is that of float64") {
  Gpu gpu;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    const std::size_t count = 1 + gpu.random() % 200000;
    std::vector<double> wanted(count);
    std::vector<DeviceMemory> memory;
    std::vector<void*> vectors;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<std::uint8_t> bytes(count * size_of(dtype));
      for (std::size_t i = 0; i < count; ++i) {
        write_number(bytes.data() + i * size_of(dtype), dtype, gpu.value(dtype));
        wanted[i] += number_of(bytes.data() + i * size_of(dtype), dtype) / 3.0;
      }
      memory.push_back(gpu.copy_of(bytes));
      vectors.push_back(memory.back().data());
    }
    take(gpu.kernels.average(gpu.stream.handle(), vectors, count, dtype));
    const auto result = gpu.bytes_of(memory[0]);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double is = number_of(result.data() + i * size_of(dtype), dtype);
      wrong += std::fabs(is - wanted[i]) > 4.0 * precision_of(dtype) * (1.0 + std::fabs(wanted[i])) ? 1U : 0U;
    }
    CHECK_MESSAGE(wrong == 0, name_of(dtype), " of ", count, ", seed ", gpu.seed);
  }
}

TEST_CASE("gpu: Adasum is the same to the bit each time") {
  Gpu gpu;
  const std::size_t count = 100003;
  std::vector<std::uint8_t> a(count * 4);
  std::vector<std::uint8_t> b(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    write_number(a.data() + i * 4, Dtype::kFloat32, gpu.value(Dtype::kFloat32));
    write_number(b.data() + i * 4, Dtype::kFloat32, gpu.value(Dtype::kFloat32));
  }
  std::vector<std::uint8_t> first;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto left = gpu.copy_of(a);
    const auto right = gpu.copy_of(b);
    const std::vector<void*> vectors = {left.data(), right.data()};
    take(gpu.kernels.adasum(gpu.stream.handle(), vectors, count, Dtype::kFloat32));
    const auto result = gpu.bytes_of(left);
    if (repeat == 0) {
      first = result;
    }
    CHECK_MESSAGE(result == first, "seed ", gpu.seed);
  }
}

}  // namespace hvd::kernels_test
