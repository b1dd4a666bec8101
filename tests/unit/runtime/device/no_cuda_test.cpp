#include <doctest/doctest.h>

#include "runtime/device/device.h"

namespace hvd::no_cuda_test {

TEST_CASE("where no driver is, opening a GPU fails and says what would bring one") {
  const auto device = Device::open(0, "libcuda-that-is-not-there.so.1");
  REQUIRE_FALSE(device.ok());
  const bool is_told = device.error().message().find("install its driver") != std::string::npos ||
                       device.error().message().find("CUDA toolkit") != std::string::npos;
  CHECK_MESSAGE(is_told, device.error().message());
  CHECK_FALSE(Device::describe_all("libcuda-that-is-not-there.so.1").ok());
}

}  // namespace hvd::no_cuda_test
