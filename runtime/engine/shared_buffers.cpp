#include "runtime/engine/shared_buffers.h"

#include <sys/mman.h>

#include <cstring>

namespace hvd {

// The buffer is ordinary memory where this rank shares its node with no other, and where the arena has no place for it.
// The ranks of a node have the same arena with the same places taken, so they all decide alike.
Result<void> SharedBuffers::add(PendingOp& op) {
  SharedBuffer buffer;
  buffer.number = ++last_number_;
  buffer.size_bytes = static_cast<std::size_t>(op.what.shape.front());
  if (shm_ != nullptr && shm_->arena_bytes() > 0 && !arena_map_) {
    arena_map_.emplace(shm_->arena_bytes(), kPageBytes);
  }
  if (const auto offset = arena_map_ ? arena_map_->allocate(buffer.size_bytes) : std::nullopt) {
    HVD_TRY(shm_->reserve(*offset, buffer.size_bytes));
    buffer.offset = static_cast<std::int64_t>(*offset);
    buffer.data = shm_->arena(shm_->local_rank()) + *offset;
  } else {
    // The memory is mapped, because it stays when the engine ends; see hvd_buffer_destroy.
    void* own = ::mmap(nullptr, buffer.size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) {
      return Error(Code::kResource, "out of memory: no " + std::to_string(buffer.size_bytes) + " bytes for a buffer");
    }
    buffer.data = static_cast<std::uint8_t*>(own);
  }
  HVD_TRY_ASSIGN(op.output, OwnedOutput::allocate(sizeof buffer.data, {}));
  std::memcpy(op.output->data.get(), &buffer.data, sizeof buffer.data);
  table_.put(std::move(buffer));
  return {};
}

void SharedBuffers::remove(std::int32_t number) {
  const auto buffer = table_.remove(number);
  if (buffer && buffer->offset < 0) {
    ::munmap(buffer->data, buffer->size_bytes);
  } else if (buffer) {
    const auto offset = static_cast<std::uint64_t>(buffer->offset);
    shm_->release(offset, buffer->size_bytes);
    arena_map_->release(offset);
  }
}

}  // namespace hvd
