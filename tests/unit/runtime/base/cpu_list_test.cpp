#include "runtime/base/cpu_list.h"

#include <doctest/doctest.h>

namespace hvd::cpu_list_test {

TEST_CASE("a list of processors is read as Linux writes it") {
  CHECK(parse_cpu_list("0-3,8\n").value() == CpuList{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list(" 5 ").value() == CpuList{5});
  CHECK(parse_cpu_list("4,0-1,1").value() == CpuList{0, 1, 4});
  CHECK(parse_cpu_list("").value().empty());
  CHECK(parse_cpu_list("\n").value().empty());  // a memory node without processors
}

TEST_CASE("what is not a list of processors is refused") {
  for (const char* text : {"x", "1,", ",1", "3-1", "1-", "-1", "1--2", "0-99999999", "70000", "1 2", "0-3:2/4"}) {
    CAPTURE(text);
    CHECK(parse_cpu_list(text).error().code() == Code::kInvalid);
  }
}

TEST_CASE("a list of processors is written as short as can be, and read back") {
  CHECK(cpu_list_text({}).empty());
  CHECK(cpu_list_text({7}) == "7");
  CHECK(cpu_list_text({0, 1}) == "0,1");
  CHECK(cpu_list_text({0, 1, 2, 5, 8, 9, 10, 11}) == "0-2,5,8-11");
  const CpuList cpus = {0, 2, 3, 4, 64, 66};
  CHECK(parse_cpu_list(cpu_list_text(cpus)).value() == cpus);
}

}  // namespace hvd::cpu_list_test
