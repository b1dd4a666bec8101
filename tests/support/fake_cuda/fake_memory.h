// What was given out as memory of a device or pinned memory. Thread: any (one mutex of its own).
#pragma once

#include <cstddef>
#include <optional>

namespace hvd::fake {

struct Block {
  std::size_t size_bytes = 0;
  int device = 0;
  bool is_pinned = false;
};

// Null: there is no memory.
void* allocate(std::size_t size_bytes, int device, bool is_pinned);
// False: no such block begins there.
bool free_block(void* data, bool is_pinned);
// The block that the address is in.
std::optional<Block> find_block(const void* data);
// Whether all of it is in one block; a kernel may touch nothing else. 0 bytes are.
bool is_within_block(const void* data, std::size_t size_bytes);

}  // namespace hvd::fake
