#include "tests/support/fake_cuda/fake_memory.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/support/fake_cuda/fake_faults.h"

namespace hvd::fake {
namespace {

struct Blocks {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> by_begin;
};

Blocks& blocks() {
  static auto* all = new Blocks;  // never destroyed: streams may run until the process ends
  return *all;
}

const char* kind_of(bool is_pinned) {
  return is_pinned ? "live pinned memory" : "live memory";
}

// The caller holds the mutex.
std::map<std::uintptr_t, Block>::const_iterator block_at(const Blocks& all, std::uintptr_t address) {
  auto next = all.by_begin.upper_bound(address);
  if (next == all.by_begin.begin()) {
    return all.by_begin.end();
  }
  --next;
  return address < next->first + next->second.size_bytes ? next : all.by_begin.end();
}

}  // namespace

void* allocate(std::size_t size_bytes, int device, bool is_pinned) {
  static constexpr std::size_t kAlignment = 512;  // as the driver gives it
  const std::size_t whole = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, whole);
  if (data != nullptr) {
    const std::lock_guard lock(blocks().mutex);
    blocks().by_begin[reinterpret_cast<std::uintptr_t>(data)] = Block{size_bytes, device, is_pinned};
    add_live(kind_of(is_pinned), 1);
  }
  return data;
}

bool free_block(void* data, bool is_pinned) {
  {
    const std::lock_guard lock(blocks().mutex);
    const auto known = blocks().by_begin.find(reinterpret_cast<std::uintptr_t>(data));
    if (known == blocks().by_begin.end() || known->second.is_pinned != is_pinned) {
      return false;
    }
    blocks().by_begin.erase(known);
  }
  add_live(kind_of(is_pinned), -1);
  std::free(data);
  return true;
}

std::optional<Block> find_block(const void* data) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = block_at(blocks(), reinterpret_cast<std::uintptr_t>(data));
  return found == blocks().by_begin.end() ? std::nullopt : std::optional<Block>(found->second);
}

bool is_within_block(const void* data, std::size_t size_bytes) {
  if (size_bytes == 0) {
    return true;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(blocks().mutex);
  const auto found = block_at(blocks(), address);
  return found != blocks().by_begin.end() && size_bytes <= found->first + found->second.size_bytes - address;
}

}  // namespace hvd::fake
