#include "runtime/device/device.h"

#include <latch>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/device/device_memory.h"
#include "runtime/device/stream.h"
#include "tests/support/fake_cuda/fake_control.h"

namespace hvd::device_test {
namespace {

const fake::Control& cuda() {
  return fake::cuda();
}

std::shared_ptr<Device> open_device() {
  auto opened = Device::open(0, FAKE_CUDA_LIBRARY);
  REQUIRE_MESSAGE(opened.ok(), (opened.ok() ? "" : opened.error().message()));
  return std::move(opened).value();
}

// Holds a stream until it is let go.
void wait_at(void* latch) {
  static_cast<std::latch*>(latch)->wait();
}

template <typename Value>
Value take(Result<Value> result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
  return std::move(result).value();
}

void take(const Result<void>& result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message()));
}

// Asked beside Device.
void* current_context() {
  return cuda().current_context();
}

}  // namespace

TEST_CASE("a device tells its name, its number and an identity that lasts") {
  const auto device = open_device();
  CHECK(device->info().ordinal == 0);
  CHECK(device->info().name == "fake GPU");
  CHECK(device->info().uuid == open_device()->info().uuid);
  CHECK(device->info().multiprocessors > 0);
  CHECK(take(Device::describe_all(FAKE_CUDA_LIBRARY)) == "CUDA driver 13.0, 1 GPU: fake GPU");
}

TEST_CASE("a device that is not there is named, and what hides devices") {
  const auto opened = Device::open(7, FAKE_CUDA_LIBRARY);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().code() == Code::kNotFound);
  CHECK(opened.error().message().find("GPU 7") != std::string::npos);
  CHECK(opened.error().message().find("CUDA_VISIBLE_DEVICES") != std::string::npos);
}

TEST_CASE("a caller's thread finds its current context as it left it") {
  const auto device = open_device();
  CHECK(current_context() == nullptr);
  {
    const auto current = take(Current::make(*device));
    void* own = current_context();
    CHECK(own != nullptr);
    const auto memory = take(DeviceMemory::make(device, 100));
    CHECK(current_context() == own);
  }
  CHECK(current_context() == nullptr);
  const auto stream = take(DeviceStream::make(device));
  CHECK(current_context() == nullptr);
}

TEST_CASE("what is made is given back, and moved objects own nothing") {
  const auto device = open_device();
  {
    auto stream = take(DeviceStream::make(device));
    auto event = take(Event::make(device));
    auto memory = take(DeviceMemory::make(device, 4096));
    auto pinned = take(PinnedMemory::make(device, 4096));
    const auto other_stream = std::move(stream);
    const auto other_event = std::move(event);
    const auto other_memory = std::move(memory);
    pinned = take(PinnedMemory::make(device, 100));
    CHECK(cuda().count("live stream") == 1);
    CHECK(cuda().count("live event") == 1);
    CHECK(cuda().count("live memory") == 1);
    CHECK(cuda().count("live pinned memory") == 1);
    CHECK(pinned.size_bytes() == 100);
  }
  CHECK(cuda().count("live stream") == 0);
  CHECK(cuda().count("live event") == 0);
  CHECK(cuda().count("live memory") == 0);
  CHECK(cuda().count("live pinned memory") == 0);
  CHECK(device->release_result().ok());
}

TEST_CASE("no bytes are no memory, and are not asked for") {
  const auto device = open_device();
  const auto calls = cuda().count("cuMemAlloc");
  CHECK(take(DeviceMemory::make(device, 0)).data() == nullptr);
  CHECK(take(PinnedMemory::make(device, 0)).data() == nullptr);
  CHECK(cuda().count("cuMemAlloc") == calls);
}

TEST_CASE("bytes go to the device and back, in the order of the stream") {
  const auto device = open_device();
  auto stream = take(DeviceStream::make(device));
  const auto memory = take(DeviceMemory::make(device, 1000));
  const auto there = take(PinnedMemory::make(device, 1000));
  const auto back = take(PinnedMemory::make(device, 1000));
  for (std::size_t i = 0; i < 1000; ++i) {
    there.data()[i] = static_cast<std::uint8_t>(i);
  }
  take(device->fill(memory.data(), 7, 1000, stream.handle()));
  take(device->copy(memory.data(), there.data(), 500, stream.handle()));
  take(device->copy(back.data(), memory.data(), 1000, stream.handle()));
  take(stream.synchronize());
  CHECK(back.data()[499] == static_cast<std::uint8_t>(499));
  CHECK(back.data()[500] == 7);
}

TEST_CASE("an event is done when what it marks is, and another stream can wait for it without the host") {
  const auto device = open_device();
  std::latch gate(1);
  auto first = take(DeviceStream::make(device));
  auto second = take(DeviceStream::make(device));
  auto event = take(Event::make(device));
  const auto memory = take(PinnedMemory::make(device, 1));
  CHECK(take(event.is_done()));  // never recorded
  memory.data()[0] = 0;
  const auto syncs = cuda().count("cuStreamSynchronize");
  take(device->call_on_host(first.handle(), &wait_at, &gate));
  take(device->fill(memory.data(), 1, 1, first.handle()));
  take(event.record(first.handle()));
  take(device->wait_for(second.handle(), event.handle()));
  auto done = take(Event::make(device));
  take(done.record(second.handle()));
  CHECK_FALSE(take(event.is_done()));
  CHECK_FALSE(take(done.is_done()));
  CHECK(cuda().count("cuStreamSynchronize") == syncs);
  gate.count_down();
  take(done.wait_on_host());
  CHECK(take(event.is_done()));
  CHECK(memory.data()[0] == 1);
}

TEST_CASE("timed events tell the time between them") {
  const auto device = open_device();
  auto stream = take(DeviceStream::make(device));
  auto begin = take(Event::make(device, true));
  auto end = take(Event::make(device, true));
  auto untimed = take(Event::make(device));
  take(begin.record(stream.handle()));
  take(end.record(stream.handle()));
  take(untimed.record(stream.handle()));
  take(stream.synchronize());
  CHECK(take(device->elapsed_ms(begin.handle(), end.handle())) >= 0.0F);
  CHECK_FALSE(device->elapsed_ms(begin.handle(), untimed.handle()).ok());
}

TEST_CASE("memory tells whose it is") {
  const auto device = open_device();
  const auto memory = take(DeviceMemory::make(device, 64));
  const auto pinned = take(PinnedMemory::make(device, 64));
  const int own = 0;
  CHECK(take(device->device_of(static_cast<std::uint8_t*>(memory.data()) + 63)) == 0);
  CHECK(device->device_of(pinned.data()).error().code() == Code::kNotFound);
  CHECK(device->device_of(&own).error().code() == Code::kNotFound);
}

TEST_CASE("a stream of which a graph is captured is seen") {
  const auto device = open_device();
  auto stream = take(DeviceStream::make(device));
  CHECK_FALSE(take(device->is_capturing(stream.handle())));
  cuda().set_capturing(stream.handle(), true);
  CHECK(take(device->is_capturing(stream.handle())));
  cuda().set_capturing(stream.handle(), false);
}

TEST_CASE("every failure names the function, the code, its text, and what to try") {
  const auto device = open_device();
  cuda().fail("cuMemAlloc", 1);
  const auto memory = DeviceMemory::make(device, 1 << 20);
  REQUIRE_FALSE(memory.ok());
  CHECK(memory.error().code() == Code::kResource);
  for (const char* part : {"1048576 bytes on GPU 0", "cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "HOROVOD_FUSION"}) {
    CHECK_MESSAGE(memory.error().message().find(part) != std::string::npos, memory.error().message());
  }
  const auto failure_of = [&](const char* function, auto call) {
    cuda().fail(function, 1);
    const auto result = call();
    CHECK_MESSAGE(!result.ok(), function);
    CHECK_MESSAGE(result.error().message().find(function) != std::string::npos, result.error().message());
    CHECK(call().ok());
  };
  auto stream = take(DeviceStream::make(device));
  auto event = take(Event::make(device));
  auto block = take(PinnedMemory::make(device, 8));
  failure_of("cuStreamCreateWithPriority", [&] { return DeviceStream::make(device); });
  failure_of("cuEventCreate", [&] { return Event::make(device); });
  failure_of("cuMemHostAlloc", [&] { return PinnedMemory::make(device, 8); });
  failure_of("cuEventRecord", [&] { return event.record(stream.handle()); });
  failure_of("cuEventQuery", [&] { return event.is_done(); });
  failure_of("cuStreamWaitEvent", [&] { return device->wait_for(stream.handle(), event.handle()); });
  failure_of("cuMemcpyAsync", [&] { return device->copy(block.data(), block.data() + 4, 4, stream.handle()); });
  failure_of("cuMemsetD8Async", [&] { return device->fill(block.data(), 0, 8, stream.handle()); });
  failure_of("cuStreamSynchronize", [&] { return stream.synchronize(); });
  failure_of("cuStreamIsCapturing", [&] { return device->is_capturing(stream.handle()); });
  failure_of("cuCtxPushCurrent", [&] { return event.is_done(); });
  failure_of("cuDevicePrimaryCtxRetain", [&] { return Device::open(0, FAKE_CUDA_LIBRARY); });
}

TEST_CASE("what fails when it is given back is told by the device, once for all") {
  const auto device = open_device();
  cuda().fail("cuEventDestroy", 1);
  {
    const auto event = take(Event::make(device));
  }
  REQUIRE_FALSE(device->release_result().ok());
  CHECK(device->release_result().error().message().find("cuEventDestroy") != std::string::npos);
}

TEST_CASE("what fails on the device is told by the next call, and by every one after it") {
  const auto device = open_device();
  auto stream = take(DeviceStream::make(device));
  auto event = take(Event::make(device));
  const auto memory = take(DeviceMemory::make(device, 8));
  cuda().fail("fill", 1, 700);
  take(device->fill(memory.data(), 0, 8, stream.handle()));
  static_cast<void>(stream.synchronize().ok());
  const auto told = event.is_done();
  REQUIRE_FALSE(told.ok());
  CHECK(told.error().message().find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
  CHECK_FALSE(DeviceStream::make(device).ok());
  cuda().mend(0);
  CHECK(DeviceStream::make(device).ok());
}

TEST_CASE("a kernel that this build does not have is refused by its name") {
  const auto device = open_device();
  const auto found = device->kernel("hvd_no_such_kernel");
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code() == Code::kNotFound);
}

TEST_CASE("a driver that is older than the device code is told to be the cause") {
  const auto device = open_device();
  for (const int code :
       {200, 209, 218, 222}) {  // what drivers answer, by age: invalid image, no binary, PTX, its version
    cuda().fail("cuModuleLoadData", 1, code);
    const auto found = device->kernel("hvd_move_copy4");
    REQUIRE_FALSE(found.ok());
    CHECK_MESSAGE(found.error().message().find("install a newer driver") != std::string::npos, found.error().message());
  }
}

}  // namespace hvd::device_test
