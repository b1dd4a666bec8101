#include "runtime/device/kernels.h"

#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "runtime/core/float16.h"
#include "runtime/device/adasum_body.h"
#include "tests/support/fake_cuda/fake_control.h"
#include "tests/unit/runtime/device/resnet50.h"

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

// Tensors on the device; pinned memory is looked at by both sides.
class Bench {
 public:
  Bench()
      : device(take(Device::open(0, FAKE_CUDA_LIBRARY))), stream(take(DeviceStream::make(device))), kernels(device) {}

  DevicePiece piece(std::size_t count, Dtype dtype, std::size_t shift = 0) {
    tensors.push_back(take(PinnedMemory::make(device, 2 * (count * size_of(dtype) + shift) + 64)));
    std::uint8_t* input = tensors.back().data() + shift;
    return {input, input + (count * size_of(dtype) + 32) / 16 * 16, count};
  }
  template <typename T>
  static T* input(const DevicePiece& piece) {
    return static_cast<T*>(const_cast<void*>(piece.input));
  }
  [[nodiscard]] std::int64_t launches() const { return fake::cuda().count("cuLaunchKernel"); }

  std::shared_ptr<Device> device;
  DeviceStream stream;
  DeviceKernels kernels;
  std::vector<PinnedMemory> tensors;
};

}  // namespace

TEST_CASE("pieces lie at multiples of 256 bytes, and what is between them is zero") {
  Bench bench;
  const std::vector<DevicePiece> pieces = {bench.piece(3, Dtype::kFloat32), bench.piece(0, Dtype::kFloat32),
                                           bench.piece(64, Dtype::kFloat32), bench.piece(65, Dtype::kFloat32)};
  CHECK(packed_bytes(pieces, Dtype::kFloat32) == 256 + 256 + 512);
  CHECK(packed_bytes(pieces, Dtype::kFloat16) == 3 * 256);
  auto buffer = take(PinnedMemory::make(bench.device, 1024));
  std::fill_n(buffer.data(), 1024, std::uint8_t{0xFF});
  for (const DevicePiece& piece : pieces) {
    std::fill_n(Bench::input<float>(piece), piece.count, 2.0F);
  }
  take(bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat32, Dtype::kFloat32, 0.5));
  take(bench.stream.synchronize());
  const auto* values = reinterpret_cast<const float*>(buffer.data());
  for (std::size_t i = 0; i < 256; ++i) {
    const bool is_there = i < 3 || (i >= 64 && i < 128) || (i >= 128 && i < 128 + 65);
    CHECK(values[i] == (is_there ? 1.0F : 0.0F));
  }
}

TEST_CASE("161 tensors are one launch to pack and one to unpack, and the host waits for neither") {
  Bench bench;
  std::vector<DevicePiece> pieces;
  std::mt19937 random(1);
  for (const std::size_t size : resnet50_sizes()) {
    pieces.push_back(bench.piece(1 + size / 64, Dtype::kFloat32));
    for (std::size_t i = 0; i < pieces.back().count; ++i) {
      Bench::input<float>(pieces.back())[i] = static_cast<float>(random() % 1000);
    }
  }
  const auto buffer = take(DeviceMemory::make(bench.device, packed_bytes(pieces, Dtype::kFloat16)));
  const auto step = [&] {
    take(bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat32, Dtype::kFloat16, 0.5));
    take(bench.kernels.unpack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat16, Dtype::kFloat32, 2.0));
  };
  const auto before = bench.launches();
  const auto copies = fake::cuda().count("cuMemcpyAsync");
  const auto waits = fake::cuda().count("cuStreamSynchronize") + fake::cuda().count("cuEventSynchronize");
  step();
  CHECK(bench.launches() == before + 2);
  CHECK(fake::cuda().count("cuMemcpyAsync") == copies + 2);  // the lists of pieces
  step();
  step();
  CHECK(bench.launches() == before + 6);
  CHECK(fake::cuda().count("cuMemcpyAsync") == copies + 2);  // and a step that comes again brings none
  CHECK(fake::cuda().count("cuStreamSynchronize") + fake::cuda().count("cuEventSynchronize") == waits);
  take(bench.stream.synchronize());
  std::size_t wrong = 0;
  for (const DevicePiece& piece : pieces) {
    for (std::size_t i = 0; i < piece.count; ++i) {
      wrong += static_cast<const float*>(piece.output)[i] != Bench::input<float>(piece)[i] ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("few pieces travel with the launch: nothing is copied and nothing allocated") {
  Bench bench;
  std::vector<DevicePiece> pieces;
  for (std::size_t i = 0; i < kInlineMoves; ++i) {
    pieces.push_back(bench.piece(i, Dtype::kInt64));
  }
  const auto buffer = take(DeviceMemory::make(bench.device, packed_bytes(pieces, Dtype::kInt64)));
  const auto copies = fake::cuda().count("cuMemcpyAsync");
  const auto allocations = fake::cuda().count("cuMemAlloc");
  take(bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kInt64, Dtype::kInt64, 1.0));
  take(bench.stream.synchronize());
  CHECK(fake::cuda().count("cuMemcpyAsync") == copies);
  CHECK(fake::cuda().count("cuMemAlloc") == allocations);
}

TEST_CASE("nothing to move is nothing to launch") {
  Bench bench;
  const auto before = bench.launches();
  take(bench.kernels.pack(bench.stream.handle(), {}, nullptr, Dtype::kFloat32, Dtype::kFloat32, 1.0));
  const std::vector<DevicePiece> empty(3);
  take(bench.kernels.unpack(bench.stream.handle(), empty, nullptr, Dtype::kFloat16, Dtype::kFloat16, 2.0));
  CHECK(bench.launches() == before);
}

TEST_CASE("many lists in flight on two streams each keep their own table") {
  Bench bench;
  auto other = take(DeviceStream::make(bench.device));
  std::vector<std::vector<DevicePiece>> lists;
  std::vector<DeviceMemory> buffers;
  for (std::size_t list = 0; list < 40; ++list) {
    lists.emplace_back();
    for (std::size_t i = 0; i < kInlineMoves + 1; ++i) {
      lists.back().push_back(bench.piece(1 + (i + list) % 7, Dtype::kInt32));
      std::fill_n(Bench::input<std::int32_t>(lists.back().back()), lists.back().back().count,
                  static_cast<std::int32_t>(1000 * list + i));
    }
    buffers.push_back(take(DeviceMemory::make(bench.device, packed_bytes(lists.back(), Dtype::kInt32))));
  }
  for (std::size_t list = 0; list < lists.size(); ++list) {
    const StreamHandle stream = list % 2 == 0 ? bench.stream.handle() : other.handle();
    take(bench.kernels.pack(stream, lists[list], buffers[list].data(), Dtype::kInt32, Dtype::kInt32, 1.0));
    take(bench.kernels.unpack(stream, lists[list], buffers[list].data(), Dtype::kInt32, Dtype::kInt32, 1.0));
  }
  take(bench.stream.synchronize());
  take(other.synchronize());
  std::size_t wrong = 0;
  for (const auto& list : lists) {
    for (const DevicePiece& piece : list) {
      wrong += std::memcmp(piece.input, piece.output, piece.count * sizeof(std::int32_t)) != 0 ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every type goes to itself with any factor, and float32 to both of 16 bits and back") {
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    for (const double scale : {1.0, 0.5}) {
      REQUIRE(move_kernel(dtype, dtype, scale, true) != "");
      Bench bench;
      CHECK_MESSAGE(bench.device->kernel(move_kernel(dtype, dtype, scale, true)).ok(), name_of(dtype));
    }
  }
  CHECK(move_kernel(Dtype::kFloat32, Dtype::kFloat16, 1.0, true) == "hvd_move_float32_float16");
  CHECK(move_kernel(Dtype::kBfloat16, Dtype::kFloat32, 1.0, true) == "hvd_move_bfloat16_float32");
  CHECK(move_kernel(Dtype::kFloat16, Dtype::kBfloat16, 1.0, true).empty());
  CHECK(move_kernel(Dtype::kFloat64, Dtype::kFloat32, 1.0, true).empty());
}

TEST_CASE("a cast that there is not is refused by both names, and nothing is launched") {
  Bench bench;
  const auto before = bench.launches();
  const std::vector<DevicePiece> pieces = {bench.piece(3, Dtype::kFloat64)};
  const auto done =
      bench.kernels.pack(bench.stream.handle(), pieces, bench.tensors[0].data(), Dtype::kFloat64, Dtype::kFloat16, 1.0);
  REQUIRE_FALSE(done.ok());
  CHECK(done.error().code() == Code::kInvalid);
  CHECK(done.error().message().find("float64 to float16") != std::string::npos);
  CHECK(bench.launches() == before);
}

TEST_CASE("tensors at odd addresses are copied, and refused where elements would have to be read") {
  Bench bench;
  const std::vector<DevicePiece> pieces = {bench.piece(100, Dtype::kFloat32, 1), bench.piece(7, Dtype::kFloat32)};
  for (const DevicePiece& piece : pieces) {
    std::memset(const_cast<void*>(piece.input), 0x3C, piece.count * sizeof(float));
  }
  auto buffer = take(PinnedMemory::make(bench.device, packed_bytes(pieces, Dtype::kFloat32)));
  take(bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat32, Dtype::kFloat32, 1.0));
  take(bench.stream.synchronize());
  CHECK(std::memcmp(buffer.data(), pieces[0].input, 400) == 0);
  CHECK(buffer.data()[400] == 0);
  CHECK(std::memcmp(buffer.data() + 512, pieces[1].input, 28) == 0);
  CHECK_FALSE(
      bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat32, Dtype::kFloat32, 0.5).ok());
}

TEST_CASE("a piece that is no memory of the device ends in an error, not in a wrong result") {
  Bench bench;
  std::vector<float> host(10);
  const std::vector<DevicePiece> pieces = {{host.data(), host.data(), host.size()}};
  const auto buffer = take(DeviceMemory::make(bench.device, 256));
  take(bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat32, Dtype::kFloat32, 1.0));
  const auto done = bench.stream.synchronize();
  fake::cuda().mend(0);
  REQUIRE_FALSE(done.ok());
  CHECK(done.error().message().find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
}

TEST_CASE("a launch that fails is told with the driver's words") {
  Bench bench;
  const std::vector<DevicePiece> pieces = {bench.piece(3, Dtype::kFloat32)};
  const auto buffer = take(DeviceMemory::make(bench.device, 256));
  fake::cuda().fail("cuLaunchKernel", 1);
  const auto done =
      bench.kernels.pack(bench.stream.handle(), pieces, buffer.data(), Dtype::kFloat32, Dtype::kFloat32, 1.0);
  REQUIRE_FALSE(done.ok());
  CHECK(done.error().message().find("cuLaunchKernel") != std::string::npos);
}

TEST_CASE("Adasum of two to five vectors is that of float64, rounded at each level") {
  Bench bench;
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (std::size_t ranks = 2; ranks <= 5; ++ranks) {
    static constexpr std::size_t kCount = 3001;
    std::vector<std::vector<double>> exact(ranks, std::vector<double>(kCount));
    std::vector<PinnedMemory> memory;
    std::vector<void*> vectors;
    for (auto& vector : exact) {
      memory.push_back(take(PinnedMemory::make(bench.device, kCount * sizeof(float))));
      vectors.push_back(memory.back().data());
      for (std::size_t i = 0; i < kCount; ++i) {
        auto& value = reinterpret_cast<float*>(memory.back().data())[i];
        value = static_cast<float>(normal(random) + 0.5);
        vector[i] = static_cast<double>(value);
      }
    }
    const auto combine = [&](auto&& self, std::size_t begin, std::size_t end) -> std::vector<double> {
      if (end - begin == 1) {
        return exact[begin];
      }
      std::size_t half = 1;
      while (half * 2 < end - begin) {
        half *= 2;
      }
      auto a = self(self, begin, begin + half);
      const auto b = self(self, begin + half, end);
      double aa = 0.0;
      double ab = 0.0;
      double bb = 0.0;
      for (std::size_t i = 0; i < kCount; ++i) {
        aa += a[i] * a[i];
        ab += a[i] * b[i];
        bb += b[i] * b[i];
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        a[i] = (1.0 - ab / (2.0 * aa)) * a[i] + (1.0 - ab / (2.0 * bb)) * b[i];
      }
      return a;
    };
    const auto before = bench.launches();
    take(bench.kernels.adasum(bench.stream.handle(), vectors, kCount, Dtype::kFloat32));
    CHECK(bench.launches() == before + 2 * static_cast<std::int64_t>(ranks - 1));
    take(bench.stream.synchronize());
    const auto wanted = combine(combine, 0, ranks);
    double worst = 0.0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double is = static_cast<double>(static_cast<const float*>(vectors[0])[i]);
      worst = std::max(worst, std::fabs(is - wanted[i]) / (1.0 + std::fabs(wanted[i])));
    }
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("Adasum with a vector of zeros is the other vector, in every floating type") {
  Bench bench;
  auto a = take(PinnedMemory::make(bench.device, 800));
  auto b = take(PinnedMemory::make(bench.device, 800));
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    std::fill_n(a.data(), 800, std::uint8_t{0});
    std::fill_n(b.data(), 800, std::uint8_t{0x3C});
    const std::vector<void*> vectors = {a.data(), b.data()};
    take(bench.kernels.adasum(bench.stream.handle(), vectors, 100, dtype));
    take(bench.stream.synchronize());
    CHECK(std::memcmp(a.data(), b.data(), 100 * size_of(dtype)) == 0);
  }
  CHECK_FALSE(bench.kernels.adasum(bench.stream.handle(), {}, 1, Dtype::kInt32).ok());
}

// 60000 twice is more than float16 has.
template <typename Element>
void check_average(Bench& bench, Dtype dtype, std::size_t ranks, double precision) {
  constexpr std::size_t kCount = 700;
  using Stored = typename Element::Stored;
  std::vector<PinnedMemory> memory;
  std::vector<void*> vectors;
  double sum = 0.0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double value = rank < 2 ? 60000.0 : 8.0 * static_cast<double>(rank);
    sum += value;
    memory.push_back(take(PinnedMemory::make(bench.device, kCount * sizeof(Stored))));
    vectors.push_back(memory.back().data());
    std::fill_n(reinterpret_cast<Stored*>(memory.back().data()), kCount, rounded<Element>(value));
  }
  const auto before = bench.launches();
  take(bench.kernels.average(bench.stream.handle(), vectors, kCount, dtype));
  CHECK(bench.launches() == before + static_cast<std::int64_t>(ranks - 1));
  take(bench.stream.synchronize());
  for (const std::size_t at : {std::size_t{0}, kCount - 1}) {
    CHECK(element_of<Element>(vectors[0], at) == doctest::Approx(sum / static_cast<double>(ranks)).epsilon(precision));
  }
}

TEST_CASE("an average of one to five vectors is that of float64, in every floating type") {
  Bench bench;
  for (std::size_t ranks = 1; ranks <= 5; ++ranks) {
    check_average<AsFloat16>(bench, Dtype::kFloat16, ranks, 2e-3);
    check_average<AsBfloat16>(bench, Dtype::kBfloat16, ranks, 2e-2);
    check_average<AsItself<float>>(bench, Dtype::kFloat32, ranks, 1e-6);
    check_average<AsItself<double>>(bench, Dtype::kFloat64, ranks, 1e-15);
  }
  CHECK_FALSE(bench.kernels.average(bench.stream.handle(), {}, 1, Dtype::kInt32).ok());
}

TEST_CASE("Adasum rounds each element once") {
  // Half way between two float16 by way of float32, and just above it in float64.
  const double value = 1.0 + 1.0 / 2048.0 + 1e-12;
  CHECK(rounded<AsFloat16>(value) == 0x3C01);
  CHECK(rounded<AsFloat16>(-value) == 0xBC01);
  CHECK(rounded<AsBfloat16>(1.0 + 1.0 / 256.0 + 1e-12) == 0x3F81);
}

}  // namespace hvd::kernels_test
