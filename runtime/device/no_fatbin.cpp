// device_code() of a build without nvcc.
#include "runtime/device/fatbin.h"

namespace hvd {

std::span<const std::uint8_t> device_code() {
  return {};
}

}  // namespace hvd
