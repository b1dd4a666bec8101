// SharedBuffers makes the buffers in which an allreduce among a node's ranks copies nothing. All ranks make and end
// them at the same place of the order that the coordinator decides, so that a buffer has the same number and offset on
// all of them.
// Thread: engine only, except table().
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/result.h"
#include "runtime/core/arena_map.h"
#include "runtime/engine/buffer_table.h"
#include "runtime/execute/pending_op.h"
#include "runtime/link/shm_segment.h"

namespace hvd {

class SharedBuffers {
 public:
  // `shm` is the memory that this rank shares with others of its node; null: it is alone there. It must outlive this.
  explicit SharedBuffers(ShmSegment* shm) : shm_(shm) {}

  // The operation's output becomes the buffer's address.
  Result<void> add(PendingOp& op);
  void remove(std::int32_t number);
  [[nodiscard]] const BufferTable& table() const { return table_; }

 private:
  ShmSegment* const shm_;
  BufferTable table_;
  std::optional<ArenaMap> arena_map_;  // of the memory that this node's ranks share
  std::int32_t last_number_ = 0;
};

}  // namespace hvd
