// BlockPool keeps freed memory blocks of one size for the next object of that size, such as the parts of an operation
// in each training step. A program that repeats the same step then asks the system for no memory.
//
// Thread: any (mutex mu_).
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace hvd {

class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool() {
    for (void* block : free_) {
      ::operator delete(block);
    }
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns memory of this size. The first call fixes the size that is kept; memory of other sizes comes from the
  // system.
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mu_);
    block_bytes_ = block_bytes_ == 0 ? bytes : block_bytes_;
    if (bytes != block_bytes_) {
      return ::operator new(bytes);
    }
    if (!free_.empty()) {
      void* block = free_.back();
      free_.pop_back();
      return block;
    }
    free_.reserve(blocks_ + 1);  // so that give() cannot fail
    void* block = ::operator new(bytes);
    ++blocks_;
    return block;
  }
  void give(void* block, std::size_t bytes) noexcept {
    const std::lock_guard lock(mu_);
    if (bytes == block_bytes_) {
      free_.push_back(block);
    } else {
      ::operator delete(block);
    }
  }

 private:
  // guarded by mu_
  std::mutex mu_;
  std::size_t block_bytes_ = 0;
  std::size_t blocks_ = 0;  // blocks of the pool, free or not
  std::vector<void*> free_;
};

// Allocator for containers and shared pointers of the C++ library. It keeps the pool alive as long as any of its memory
// is used.
template <typename T>
class BlockAllocator {
 public:
  using value_type = T;

  explicit BlockAllocator(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}
  template <typename Other>
  BlockAllocator(const BlockAllocator<Other>& other) : pool_(other.pool()) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    // Several elements at once are a container's table, which the container keeps by itself.
    return static_cast<T*>(count == 1 ? pool_->take(sizeof(T)) : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    if (count == 1) {
      pool_->give(block, sizeof(T));
    } else {
      ::operator delete(block);
    }
  }
  [[nodiscard]] const std::shared_ptr<BlockPool>& pool() const { return pool_; }
  friend bool operator==(const BlockAllocator& a, const BlockAllocator& b) { return a.pool_ == b.pool_; }

 private:
  std::shared_ptr<BlockPool> pool_;
};

}  // namespace hvd
