#include "runtime/base/machine.h"

#include <doctest/doctest.h>

namespace hvd {

TEST_CASE("a boot of the machine has an id, which stays, and its processor has a name") {
  CHECK(boot_id().size() == 36);
  CHECK(boot_id() == boot_id());
  CHECK(!processor_name().empty());
}

}  // namespace hvd
