#include "runtime/algo/reduce_kernels.h"

#include <array>
#include <cstdint>

#include "runtime/algo/reduce_loops.h"

#if defined(HVD_REDUCE_LOOPS_X86)
#include <cpuid.h>
#endif

namespace hvd {
namespace {

const ReduceLoops& loops() {
  static const ReduceLoops best = supported_reduce_loops().front();
  return best;
}

#if defined(HVD_REDUCE_LOOPS_X86)
// Checks for F16C, for which clang 14 has no built-in name: bit 29 of ECX (Intel 64 and IA-32 Architectures Software
// Developer's Manual, CPUID leaf 1).
bool converts_float16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1U << 29U)) != 0;
}
#endif

}  // namespace

std::vector<ReduceLoops> supported_reduce_loops() {
  std::vector<ReduceLoops> found;
#if defined(HVD_REDUCE_LOOPS_X86)
  if (converts_float16() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    found.push_back(reduce_loops_avx512());
  }
  if (__builtin_cpu_supports("avx2") && converts_float16()) {
    found.push_back(reduce_loops_avx2());
  }
#endif
  found.push_back(reduce_loops_portable());
  return found;
}

void reduce_turn(const ReduceTurn& turn, Dtype dtype, ReduceOp op) {
  loops().reduce_turn(turn, dtype, op);
}

void reduce_two(void* into, const void* first, const void* second, std::size_t count, Dtype dtype, ReduceOp op) {
  const std::array operands = {static_cast<const std::uint8_t*>(first), static_cast<const std::uint8_t*>(second)};
  ReduceTurn turn;
  turn.operands = operands;
  turn.result = static_cast<std::uint8_t*>(into);
  turn.size_bytes = count * size_of(dtype);
  reduce_turn(turn, dtype, op);
}

void reduce_into(void* into, const void* from, std::size_t count, Dtype dtype, ReduceOp op) {
  reduce_two(into, into, from, count, dtype, op);
}

void scale_in_place(void* data, std::size_t count, Dtype dtype, Scale scale) {
  if (!scale.is_one()) {
    loops().scale_in_place(data, count, dtype, scale);
  }
}

}  // namespace hvd
