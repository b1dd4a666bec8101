#include "runtime/link/shm_ring.h"

#include <algorithm>
#include <cstring>

namespace hvd {

struct ShmRing::Words {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> written;
  std::atomic<std::uint32_t> is_closed;
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> read;
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> wants_room;
};

ShmRing::ShmRing(std::uint8_t* memory) : words_(reinterpret_cast<Words*>(memory)), data_(memory + kHeaderBytes) {
  static_assert(sizeof(Words) <= kHeaderBytes && std::atomic<std::uint64_t>::is_always_lock_free);
}

std::size_t ShmRing::write(std::string_view bytes) {
  if (kCapacity - (written_ - read_) < bytes.size()) {
    read_ = words_->read.load(std::memory_order_acquire);
  }
  const std::size_t used = written_ - read_;
  const std::size_t size = std::min(bytes.size(), used > kCapacity ? 0 : kCapacity - used);
  const std::size_t at = written_ % kCapacity;
  const std::size_t before_seam = std::min(size, kCapacity - at);
  std::memcpy(data_ + at, bytes.data(), before_seam);
  std::memcpy(data_, bytes.data() + before_seam, size - before_seam);
  written_ += size;
  words_->written.store(written_, std::memory_order_release);
  return size;
}

void ShmRing::ask_for_room() {
  // A fence, and not only this store: the writer's next look at `read` is an acquire load, which a processor may carry
  // out before an earlier store, even before one that is sequentially consistent.
  words_->wants_room.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void ShmRing::close() {
  words_->is_closed.store(1);
}

Result<Bytes> ShmRing::readable() {
  if (written_ == read_) {
    written_ = words_->written.load(std::memory_order_acquire);
  }
  const std::uint64_t there = written_ - read_;
  if (there > kCapacity) {
    return Error(Code::kProtocol, "a ring in shared memory says that it holds " + std::to_string(there) + " bytes");
  }
  const std::size_t at = read_ % kCapacity;
  return Bytes(data_ + at, std::min<std::size_t>(there, kCapacity - at));
}

void ShmRing::consume(std::size_t size) {
  read_ += size;
  words_->read.store(read_, std::memory_order_release);
}

bool ShmRing::was_asked() {
  // Paired with ask_for_room(): either the writer's next look sees what was read, or this sees the request.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return words_->wants_room.load(std::memory_order_relaxed) != 0 && words_->wants_room.exchange(0) != 0;
}

bool ShmRing::is_empty() const {
  return words_->written.load() == read_;
}

bool ShmRing::has_ended() const {
  return words_->is_closed.load() != 0 && is_empty();  // in this order: the writer closes after its last write
}

}  // namespace hvd
