// The main of the tests that need a GPU: where there is none it says why, and ends with 77, which stands for "skipped".
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>

#include <doctest/doctest.h>

#include "runtime/device/device.h"

int main(int count, char** arguments) {
  static constexpr int kSkipped = 77;
  const auto found = hvd::Device::describe_all();
  if (!found.ok()) {
    std::printf("skipped: %s\n", found.error().message().c_str());
    return kSkipped;
  }
  std::printf("%s\n", found.value().c_str());
  doctest::Context context(count, arguments);
  return context.run();
}
