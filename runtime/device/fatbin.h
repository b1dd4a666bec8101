// The built-in device code: what nvcc makes of the .cu files here, for all GPUs that it knows, as one block of bytes
// for the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

// Empty if this build was made without nvcc.
std::span<const std::uint8_t> device_code();

}  // namespace hvd
