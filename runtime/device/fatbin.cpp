// device_code() of a build with nvcc: the assembler includes the file that CMake names in HVD_FATBIN.
#include "runtime/device/fatbin.h"

// The code is 16-byte aligned, as the driver requires; the two symbols mark its ends.
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".hidden hvd_fatbin_begin\n"
    ".global hvd_fatbin_begin\n"
    "hvd_fatbin_begin:\n"
    ".incbin \"" HVD_FATBIN
    "\"\n"
    ".hidden hvd_fatbin_end\n"
    ".global hvd_fatbin_end\n"
    "hvd_fatbin_end:\n"
    ".byte 0\n"
    ".text\n");

extern "C" {
extern const std::uint8_t hvd_fatbin_begin[];  // NOLINT(modernize-avoid-c-arrays)
extern const std::uint8_t hvd_fatbin_end[];    // NOLINT(modernize-avoid-c-arrays)
}

namespace hvd {

std::span<const std::uint8_t> device_code() {
  return {hvd_fatbin_begin, hvd_fatbin_end};
}

}  // namespace hvd
