// The processor's name, by which a measurement knows whether it was made on such a one.
#pragma once

#include <string>

namespace hvd {

// As the kernel has it ("Intel(R) Xeon(R) ..."; of Arm its implementer and part); "unknown" where it tells nothing.
std::string processor_name();

}  // namespace hvd
