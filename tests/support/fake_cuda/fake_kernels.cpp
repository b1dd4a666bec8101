#include "tests/support/fake_cuda/fake_kernels.h"

#include <cstring>

#include "runtime/device/adasum_body.h"
#include "runtime/device/move_body.h"
#include "tests/support/fake_cuda/fake_memory.h"

namespace hvd::fake {
namespace {

template <typename From, typename To>
bool run_moves(unsigned blocks, unsigned threads, std::span<void* const> arguments) {
  const auto& list = *static_cast<const MoveList*>(arguments[0]);
  if (list.moves != nullptr && !is_within_block(list.moves, list.count * sizeof(Move))) {
    return false;
  }
  const Move* moves = list.moves != nullptr ? list.moves : list.own;
  for (std::uint32_t i = 0; i < list.count; ++i) {
    if (!is_within_block(moves[i].from, moves[i].count * sizeof(typename From::Stored)) ||
        !is_within_block(moves[i].to, moves[i].padded * sizeof(typename To::Stored))) {
      return false;
    }
  }
  const std::uint64_t warps = std::uint64_t{blocks} * (threads / kWarpLanes);
  for (std::uint64_t warp = 0; warp < warps; ++warp) {
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      move_lane<Mover<From, To>>(list, warp, warps, lane);
    }
  }
  return true;
}

template <typename Element>
bool may_touch(const AdasumPair& pair) {
  const std::size_t size_bytes = pair.count * sizeof(typename Element::Stored);
  return is_within_block(pair.a, size_bytes) && is_within_block(pair.b, size_bytes) &&
         is_within_block(pair.out, size_bytes) &&
         (pair.partial == nullptr || is_within_block(pair.partial, kProductBlocks * sizeof(Products)));
}

// As sum_of_block in adasum.cu.
Products sum_of_block(Products* sums) {
  for (unsigned half = kProductThreads / 2; half > 0; half /= 2) {
    for (unsigned thread = 0; thread < half; ++thread) {
      sums[thread].add(sums[thread + half]);
    }
  }
  return sums[0];
}

template <typename Element>
bool run_products(unsigned blocks, unsigned threads, std::span<void* const> arguments) {
  const auto& pair = *static_cast<const AdasumPair*>(arguments[0]);
  if (!may_touch<Element>(pair) || blocks != kProductBlocks || threads != kProductThreads) {
    return false;
  }
  std::vector<Products> sums(kProductThreads);
  for (unsigned block = 0; block < blocks; ++block) {
    for (unsigned thread = 0; thread < threads; ++thread) {
      sums[thread] = products_of_thread<Element>(pair, block, thread);
    }
    pair.partial[block] = sum_of_block(sums.data());
  }
  return true;
}

template <typename Element>
bool run_combine(unsigned, unsigned threads, std::span<void* const> arguments) {
  const auto& pair = *static_cast<const AdasumPair*>(arguments[0]);
  if (!may_touch<Element>(pair) || threads != kProductThreads) {
    return false;
  }
  AdasumWeights weights = pair.fixed;
  if (pair.partial != nullptr) {
    std::vector<Products> sums(pair.partial, pair.partial + kProductBlocks);
    weights = weights_of(sum_of_block(sums.data()));
  }
  for (std::uint64_t i = 0; i < pair.count; ++i) {
    combine_element<Element>(pair, weights, i);
  }
  return true;
}

std::vector<CUfunc_st> make_table() {
  std::vector<CUfunc_st> table;
#define HVD_FAKE_MOVE(name, From, To) table.push_back({#name, {sizeof(MoveList)}, &run_moves<From, To>});
  HVD_MOVE_KERNELS(HVD_FAKE_MOVE)
#define HVD_FAKE_ADASUM(suffix, Element)                                                           \
  table.push_back({"hvd_adasum_products_" #suffix, {sizeof(AdasumPair)}, &run_products<Element>}); \
  table.push_back({"hvd_adasum_combine_" #suffix, {sizeof(AdasumPair)}, &run_combine<Element>});
  HVD_ADASUM_KERNELS(HVD_FAKE_ADASUM)
  return table;
}

}  // namespace

CUfunc_st* find_kernel(const char* name) {
  static auto* table = new std::vector<CUfunc_st>(make_table());
  for (CUfunc_st& kernel : *table) {
    if (std::strcmp(kernel.name, name) == 0) {
      return &kernel;
    }
  }
  return nullptr;
}

}  // namespace hvd::fake
