// The fake driver itself: what it must catch, or tests with it would prove nothing.
#include <latch>

#include <doctest/doctest.h>

#include "runtime/device/device_memory.h"
#include "runtime/device/stream.h"
#include "tests/support/fake_cuda/fake_control.h"

namespace hvd::fake_cuda_test {
namespace {

std::shared_ptr<Device> open_device() {
  return Device::open(0, FAKE_CUDA_LIBRARY).value();
}

}  // namespace

TEST_CASE("fake: a stream runs beside the host and beside other streams") {
  const auto device = open_device();
  std::latch first_runs(1);
  std::latch second_runs(1);
  auto first = DeviceStream::make(device).value();
  auto second = DeviceStream::make(device).value();
  struct Pair {
    std::latch* mine;
    std::latch* other;
  };
  // Each waits until the other runs: done only when both run at once.
  Pair one{&first_runs, &second_runs};
  Pair two{&second_runs, &first_runs};
  const auto meet = [](void* pair) {
    static_cast<Pair*>(pair)->mine->count_down();
    static_cast<Pair*>(pair)->other->wait();
  };
  REQUIRE(device->call_on_host(first.handle(), meet, &one).ok());
  REQUIRE(device->call_on_host(second.handle(), meet, &two).ok());
  CHECK(first.synchronize().ok());
  CHECK(second.synchronize().ok());
}

TEST_CASE("fake: a copy beyond the end of memory is refused") {
  const auto device = open_device();
  auto stream = DeviceStream::make(device).value();
  const auto memory = DeviceMemory::make(device, 100).value();
  const auto pinned = PinnedMemory::make(device, 200).value();
  CHECK_FALSE(device->copy(memory.data(), pinned.data(), 101, stream.handle()).ok());
  CHECK_FALSE(device->fill(static_cast<std::uint8_t*>(memory.data()) + 1, 0, 100, stream.handle()).ok());
  CHECK(device->copy(memory.data(), pinned.data(), 100, stream.handle()).ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("fake: memory that is not pinned is read before the copy returns, and counted") {
  const auto device = open_device();
  std::latch gate(1);
  auto stream = DeviceStream::make(device).value();
  const auto target = PinnedMemory::make(device, sizeof(int)).value();
  const auto pageable = fake::cuda().count("pageable copy");
  int value = 5;
  REQUIRE(
      device->call_on_host(stream.handle(), [](void* latch) { static_cast<std::latch*>(latch)->wait(); }, &gate).ok());
  REQUIRE(device->copy(target.data(), &value, sizeof(value), stream.handle()).ok());
  value = 6;
  gate.count_down();
  REQUIRE(stream.synchronize().ok());
  CHECK(*reinterpret_cast<int*>(target.data()) == 5);
  CHECK(fake::cuda().count("pageable copy") == pageable + 1);
}

TEST_CASE("fake: a handle that was destroyed is refused") {
  const auto device = open_device();
  StreamHandle gone = nullptr;
  {
    const auto stream = DeviceStream::make(device).value();
    gone = stream.handle();
  }
  CHECK_FALSE(device->synchronize(gone).ok());
  CHECK_FALSE(device->is_capturing(gone).ok());
}

TEST_CASE("fake: the default stream is there, and is a stream like others") {
  const auto device = open_device();
  auto event = Event::make(device).value();
  CHECK(event.record(nullptr).ok());
  CHECK(event.wait_on_host().ok());
  CHECK(event.is_done().value());
}

}  // namespace hvd::fake_cuda_test
