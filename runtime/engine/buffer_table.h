// BufferTable lists the buffers that the runtime has allocated for the program (hvd_buffer_create), so that the engine
// recognises an operation on one of them. Thread: any (mutex mu_); put() and remove(): engine only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

namespace hvd {

struct SharedBuffer {
  std::int32_t number = 0;  // the same on all ranks
  std::uint8_t* data = nullptr;
  std::size_t size_bytes = 0;
  std::int64_t offset = -1;  // in the memory that the node's ranks share; -1: the memory is this rank's alone
};

class BufferTable {
 public:
  // Returns the offset of these bytes in the node's shared memory; -1 if they are not, or not all, in one buffer there.
  [[nodiscard]] std::int64_t offset_of(const void* data, std::size_t size_bytes) const {
    if (count_.load(std::memory_order_acquire) == 0) {
      return -1;
    }
    const auto* begin = static_cast<const std::uint8_t*>(data);
    const std::lock_guard lock(mu_);
    auto after = buffers_.upper_bound(begin);
    if (after == buffers_.begin()) {
      return -1;
    }
    const SharedBuffer& buffer = std::prev(after)->second;
    const auto at = static_cast<std::size_t>(begin - buffer.data);
    const bool is_inside = at <= buffer.size_bytes && size_bytes <= buffer.size_bytes - at;
    return is_inside && buffer.offset >= 0 ? buffer.offset + static_cast<std::int64_t>(at) : -1;
  }
  // Returns the buffer that begins at this address.
  [[nodiscard]] std::optional<std::int32_t> number_of(const void* data) const {
    const std::lock_guard lock(mu_);
    const auto found = buffers_.find(static_cast<const std::uint8_t*>(data));
    return found == buffers_.end() ? std::nullopt : std::optional(found->second.number);
  }
  void put(SharedBuffer buffer) {
    const std::lock_guard lock(mu_);
    const std::uint8_t* key = buffer.data;
    buffers_.emplace(key, std::move(buffer));
    count_.store(buffers_.size(), std::memory_order_release);
  }
  std::optional<SharedBuffer> remove(std::int32_t number) {
    const std::lock_guard lock(mu_);
    for (auto it = buffers_.begin(); it != buffers_.end(); ++it) {
      if (it->second.number == number) {
        SharedBuffer removed = std::move(it->second);
        buffers_.erase(it);
        count_.store(buffers_.size(), std::memory_order_release);
        return removed;
      }
    }
    return std::nullopt;
  }

 private:
  std::atomic<std::size_t> count_ = 0;
  // guarded by mu_
  mutable std::mutex mu_;
  std::map<const std::uint8_t*, SharedBuffer> buffers_;  // by the address at which they begin
};

}  // namespace hvd
