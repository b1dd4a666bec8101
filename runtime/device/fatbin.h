// The device code that is built in: what nvcc makes of the .cu files here, for all GPUs that it knows, as one file of
// bytes that the driver takes apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

// Empty: this build was made without nvcc.
std::span<const std::uint8_t> device_code();

}  // namespace hvd
