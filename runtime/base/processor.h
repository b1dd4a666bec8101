// The processor's name. A tuning table contains it, so that measurements of another processor are recognised.
#pragma once

#include <string>

namespace hvd {

// Returns the kernel's name ("Intel(R) Xeon(R) ..."; for Arm its implementer and part); "unknown" if it gives none.
std::string processor_name();

}  // namespace hvd
