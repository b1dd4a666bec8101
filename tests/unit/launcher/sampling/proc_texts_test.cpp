#include "launcher/sampling/proc_texts.h"

#include <doctest/doctest.h>

namespace hvd::launch::proc_texts_test {

TEST_CASE("a process's numbers are read though its name holds parentheses and spaces") {
  const auto stat = parse_process_stat(
      "4711 (python (x) y) S 4700 4711 4711 0 -1 4194560 9 9 0 0 100 20 3 4 20 0 5 0 1000 9000000 2500 "
      "18446744073709551615");
  REQUIRE(stat);
  CHECK(stat->parent == 4700);
  CHECK(stat->state == 'S');
  CHECK(stat->ticks == 127);
  CHECK(stat->pages == 2500);
  CHECK_FALSE(parse_process_stat("4711 (python) S 4700 4711"));
  CHECK_FALSE(parse_process_stat(""));
  CHECK_FALSE(parse_process_stat("1 (a) S x 1 1 0 -1 4194560 9 9 0 0 100 20 3 4 20 0 5 0 1000 9000000 2500"));
}

TEST_CASE("idle and waiting processors are not busy") {
  CHECK(parse_busy_ticks("cpu  10 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3\n") == 81);
  CHECK(parse_busy_ticks("cpu  10 20 30 4000\n") == 60);
  CHECK_FALSE(parse_busy_ticks("intr 1 2"));
  CHECK_FALSE(parse_busy_ticks("cpu 1 2"));
}

TEST_CASE("a node's memory is what programs could have") {
  const NodeMemory memory = parse_meminfo("MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
  CHECK(memory.total == 2048U << 10U);
  CHECK(memory.free == 1024U << 10U);
  CHECK(parse_meminfo("").total == 0);
}

TEST_CASE("a row of a GPU counts what is not told as nothing") {
  const auto gpu = parse_gpu_row("1, 87, 20480, 81559");
  REQUIRE(gpu);
  CHECK(gpu->index == 1);
  CHECK(gpu->busy_percent == 87);
  CHECK(gpu->memory_bytes == 20480ULL << 20U);
  const auto shy = parse_gpu_row("0, [N/A], 5, 10");
  REQUIRE(shy);
  CHECK(shy->busy_percent == 0);
  CHECK_FALSE(parse_gpu_row("NVIDIA-SMI has failed"));
}

}  // namespace hvd::launch::proc_texts_test
