#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace hvd {

void check_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "hvd: defect at %s:%d: %s does not hold; please report this\n", file, line, expression);
  std::abort();
}

}  // namespace hvd
