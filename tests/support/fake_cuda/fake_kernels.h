// The kernels that the fake driver can run, by name: the code of runtime/device that the GPU runs too, on the host.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

struct CUfunc_st {
  const char* name;
  std::vector<std::size_t> argument_sizes;
  // False: it would touch memory that is no device's and not pinned.
  bool (*run)(unsigned blocks, unsigned threads, std::span<void* const> arguments);
};

namespace hvd::fake {

// Null: there is none of the name.
CUfunc_st* find_kernel(const char* name);

}  // namespace hvd::fake
