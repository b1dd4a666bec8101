#include "runtime/execute_device/device_pool.h"

#include <algorithm>
#include <bit>

namespace hvd {
namespace {

constexpr std::size_t kSmallestBlock = 512;
constexpr std::size_t kGrain = 2U << 20U;  // larger blocks are multiples of this, smaller ones powers of two

std::size_t rounded(std::size_t size_bytes) {
  if (size_bytes <= kGrain) {
    return std::bit_ceil(std::max(size_bytes, kSmallestBlock));
  }
  return (size_bytes + kGrain - 1) / kGrain * kGrain;
}

}  // namespace

Result<void> DeviceBlock::copy_to(void* to, std::size_t size_bytes, void* stream) {
  auto* handle = static_cast<StreamHandle>(stream);
  if (size_bytes != 0) {
    HVD_TRY(device_->copy(to, memory_.data(), size_bytes, handle));
  }
  return used_by(handle);
}

Result<void> DeviceBlock::used_by(StreamHandle stream) {
  const auto pool = pool_.lock();
  if (pool == nullptr) {
    return {};  // the pool is gone, so the memory goes back to the driver, which waits
  }
  HVD_TRY_ASSIGN(auto event, pool->event_on(stream));
  const std::lock_guard lock(mu_);
  users_.push_back(std::move(event));
  return {};
}

std::shared_ptr<DevicePool> DevicePool::make(std::shared_ptr<Device> device) {
  return std::shared_ptr<DevicePool>(new DevicePool(std::move(device)));
}

Result<std::shared_ptr<Event>> DevicePool::event() {
  std::unique_ptr<Event> free;
  {
    const std::lock_guard lock(mu_);
    if (!events_.empty()) {
      free = std::move(events_.back());
      events_.pop_back();
    }
  }
  if (free == nullptr) {
    HVD_TRY_ASSIGN(Event made, Event::make(device_));
    free = std::make_unique<Event>(std::move(made));
  }
  const auto give_back = [pool = weak_from_this()](Event* event) {
    std::unique_ptr<Event> owned(event);
    if (const auto here = pool.lock(); here != nullptr) {
      const std::lock_guard lock(here->mu_);
      here->events_.push_back(std::move(owned));
    }
  };
  return std::shared_ptr<Event>(free.release(), give_back);
}

Result<std::shared_ptr<Event>> DevicePool::event_on(StreamHandle stream) {
  HVD_TRY_ASSIGN(auto made, event());
  HVD_TRY(made->record(stream));
  return made;
}

// It does not return a block that is more than twice as large, because a small request would then block a large one.
std::unique_ptr<DeviceBlock> DevicePool::take_free(std::size_t size_bytes) {
  const std::lock_guard lock(mu_);
  const auto found = blocks_.lower_bound(size_bytes);
  if (found == blocks_.end() || found->first > 2 * size_bytes) {
    return nullptr;
  }
  auto taken = std::move(found->second);
  blocks_.erase(found);
  return taken;
}

Result<std::shared_ptr<DeviceBlock>> DevicePool::block(std::size_t size_bytes, StreamHandle stream) {
  const std::size_t size = rounded(size_bytes);
  std::unique_ptr<DeviceBlock> free = take_free(size);
  if (free != nullptr) {
    const std::lock_guard lock(free->mu_);
    for (const auto& user : free->users_) {
      HVD_TRY(device_->wait_for(stream, user->handle()));
    }
    free->users_.clear();
  } else {
    auto made = DeviceMemory::make(device_, size);
    if (!made.ok()) {
      // Free blocks that others could not use may make room for this one; the driver waits until they are
      // unused, and with it this thread, which hears of no lost rank meanwhile.
      std::multimap<std::size_t, std::unique_ptr<DeviceBlock>> unused;
      {
        const std::lock_guard lock(mu_);
        unused.swap(blocks_);
      }
      unused.clear();
      made = DeviceMemory::make(device_, size);
    }
    HVD_TRY_ASSIGN(DeviceMemory memory, std::move(made));
    free = std::make_unique<DeviceBlock>(device_, std::move(memory), weak_from_this());
  }
  const auto give_back = [pool = weak_from_this()](DeviceBlock* block) {
    std::unique_ptr<DeviceBlock> owned(block);
    if (const auto here = pool.lock(); here != nullptr) {
      here->put(std::move(owned));
    }
  };
  return std::shared_ptr<DeviceBlock>(free.release(), give_back);
}

void DevicePool::put(std::unique_ptr<DeviceBlock> block) {
  const std::lock_guard lock(mu_);
  const std::size_t size = block->size_bytes();
  blocks_.emplace(size, std::move(block));
}

}  // namespace hvd
