#include "runtime/link/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

#include <time.h>

#include "runtime/base/machine.h"
#include "runtime/link/shm_rounds.h"

namespace hvd {
namespace {

constexpr std::uint32_t kSegmentMagic = 0x4D445648U;  // "HVDM"
constexpr std::uint32_t kSegmentVersion = 4;
constexpr int kMaxLocalRanks = 4096;
constexpr std::size_t kLaneBytes = kPageBytes + 2 * ShmRing::kBytes;  // the page of the bell, and both rings
constexpr std::size_t kMaxSlotBytes = 1U << 30U;
constexpr std::size_t kArenaBytes = std::size_t{64} << 30U;  // per rank

// Spinning lasts a few microseconds: about the time in which two cores hand over a cache line ten times. A longer wait
// means that another rank computes, and may need this core.
constexpr int kSpins = 2000;
constexpr int kYields = 16;
constexpr timespec kSleep{0, 100'000'000};  // how often the Interrupt is asked at least

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t bytes_before_lane(int local_rank) {
  return kPageBytes + static_cast<std::size_t>(local_rank) * kLaneBytes;
}

std::size_t bytes_before_slots(int local_size) {
  return bytes_before_lane(local_size) + round_up(ShmRounds::bytes_for(local_size), kPageBytes);
}

bool is_allowed(__rlimit_resource what, std::size_t bytes) {
  rlimit limit{};
  return ::getrlimit(what, &limit) == 0 && limit.rlim_cur >= bytes;
}

// There is no arena where a limit is too low for it. Growing a file beyond RLIMIT_FSIZE raises a signal, and RLIMIT_AS
// (ulimit -v), which batch systems set, counts addresses that were never used.
std::size_t possible_arena_bytes(std::size_t bytes_before, int local_size) {
  const std::size_t bytes = bytes_before + static_cast<std::size_t>(local_size) * kArenaBytes;
  return is_allowed(RLIMIT_FSIZE, bytes) && is_allowed(RLIMIT_AS, bytes) ? kArenaBytes : 0;
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &kSleep, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

// Control is the first page. Each group of words that is written together has its own cache line.
struct ShmSegment::Control {
  std::uint32_t magic = kSegmentMagic;
  std::uint32_t version = kSegmentVersion;
  std::uint32_t local_size = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t arena_bytes = 0;
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> arrived{0};
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> generation{0};  // the futex
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> left{0};  // 1 + the local rank that left first; 0: none has
  // The cores that the ranks of the node may use, as bits. Ranks may be bound to different cores, so each adds its own.
  alignas(kCacheLineBytes) std::array<std::atomic<std::uint64_t>, CPU_SETSIZE / 64> cores{};

  void add_own_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    // This fails on machines with more cores than the set has bits; then no rank spins.
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
      return;
    }
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &allowed)) {
        cores[core / 64].fetch_or(1ULL << (core % 64), std::memory_order_relaxed);
      }
    }
  }
  [[nodiscard]] int core_count() const {
    int count = 0;
    for (const auto& word : cores) {
      count += std::popcount(word.load(std::memory_order_relaxed));
    }
    return count;
  }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

ShmSegment::ShmSegment(Fd memory, void* base, std::size_t mapped_bytes, int local_size, std::size_t slot_bytes,
                       int local_rank)
    : memory_(std::move(memory)),
      base_(static_cast<std::uint8_t*>(base)),
      mapped_bytes_(mapped_bytes),
      local_size_(local_size),
      slot_bytes_(slot_bytes),
      slots_(base_ + bytes_before_slots(local_size)),
      local_rank_(local_rank),
      owner_(::getpid()),
      control_(static_cast<Control*>(base)),
      arena_bytes_(control_->arena_bytes) {
  control_->add_own_cores();
}

ShmSegment::~ShmSegment() {
  if (::getpid() == owner_) {
    std::uint32_t nobody = 0;
    control_->left.compare_exchange_strong(nobody, static_cast<std::uint32_t>(local_rank_) + 1);
    futex_wake_all(control_->generation);
  }
  ::munmap(base_, mapped_bytes_);
  if (arena_ != nullptr) {
    unmap_arena();
  }
}

// Unmaps all but the parts that were handed out and not given back. The user may still work in those, for example on
// the last gradients of a training that has ended.
void ShmSegment::unmap_arena() {
  const auto unmap = [this](std::size_t begin, std::size_t end) {
    if (begin < end) {
      ::munmap(arena_ + begin, end - begin);
    }
  };
  const std::size_t own = static_cast<std::size_t>(local_rank_) * arena_bytes_;
  std::size_t at = 0;
  for (const auto& [offset, size_bytes] : reserved_) {
    unmap(at, own + offset);
    at = round_up(own + offset + size_bytes, kPageBytes);
    keep_alone(arena_ + own + offset, at - own - offset);
  }
  unmap(at, arena_bytes_ * static_cast<std::size_t>(local_size_));
}

// Puts a copy in the place of memory that other ranks see: one that is slower to leave might still write there. Where
// memory is too short for the copy, it stays as it is.
void ShmSegment::keep_alone(std::uint8_t* data, std::size_t size_bytes) {
  void* own = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) {
    return;
  }
  std::memcpy(own, data, size_bytes);
  if (::mremap(own, size_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data) == MAP_FAILED) {
    ::munmap(own, size_bytes);
  }
}

Result<void*> ShmSegment::map(int fd, std::size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return Error::from_errno("mmap of " + std::to_string(bytes) + " bytes of shared memory");
  }
  return base;
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::create(int local_size, std::size_t slot_bytes, int local_rank) {
  static_assert(sizeof(Control) <= kPageBytes);
  if (local_size < 1 || local_size > kMaxLocalRanks || slot_bytes == 0 || slot_bytes > kMaxSlotBytes) {
    return Error(Code::kInvalid, "no shared memory for " + std::to_string(local_size) + " ranks of " +
                                     std::to_string(slot_bytes) + " bytes each");
  }
  slot_bytes = round_up(slot_bytes, kPageBytes);
  const std::size_t bytes = bytes_before_slots(local_size) + static_cast<std::size_t>(local_size) * slot_bytes;
  Fd memory(::memfd_create("hvd-node", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open()) {
    return Error::from_errno("memfd_create");
  }
  const std::size_t arena_bytes = possible_arena_bytes(bytes, local_size);
  const std::size_t all_bytes = bytes + arena_bytes * static_cast<std::size_t>(local_size);
  if (!resize_file(memory.get(), all_bytes)) {
    if (errno == EFBIG) {
      return Error(Code::kResource, "the memory that this host's ranks share needs " + std::to_string(all_bytes) +
                                        " bytes, and files here are limited to fewer; raise ulimit -f");
    }
    return Error::from_errno("ftruncate of the shared memory");
  }
  // Sealed, because a segment that shrank would kill its users by SIGBUS.
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Error::from_errno("fcntl(F_ADD_SEALS)");
  }
  HVD_TRY_ASSIGN(void* base, map(memory.get(), bytes));
  auto* control = new (base) Control();
  control->local_size = static_cast<std::uint32_t>(local_size);
  control->slot_bytes = slot_bytes;
  control->arena_bytes = arena_bytes;
  return std::unique_ptr<ShmSegment>(
      new ShmSegment(std::move(memory), base, bytes, local_size, slot_bytes, local_rank));
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::attach(Fd memory, int local_size, int local_rank) {
  struct stat info{};
  if (::fstat(memory.get(), &info) != 0) {
    return Error::from_errno("fstat of the shared memory");
  }
  const auto file_bytes = static_cast<std::size_t>(info.st_size);
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || file_bytes < kPageBytes) {
    return Error(Code::kProtocol, "what the leader of this node sent is not its shared memory");
  }
  std::size_t bytes = kPageBytes;
  HVD_TRY_ASSIGN(void* base, map(memory.get(), bytes));
  const auto* control = static_cast<const Control*>(base);
  const std::size_t slot_bytes = control->slot_bytes;
  const std::size_t arena_bytes = control->arena_bytes;
  const std::size_t bytes_before_arena =
      bytes_before_slots(local_size) + static_cast<std::size_t>(local_size) * std::min(slot_bytes, kMaxSlotBytes);
  const bool is_ours = control->magic == kSegmentMagic && control->version == kSegmentVersion &&
                       control->local_size == static_cast<std::uint32_t>(local_size) && slot_bytes != 0 &&
                       slot_bytes <= kMaxSlotBytes && (arena_bytes == 0 || arena_bytes == kArenaBytes) &&
                       file_bytes == bytes_before_arena + arena_bytes * static_cast<std::size_t>(local_size);
  ::munmap(base, bytes);
  if (!is_ours) {
    return Error(Code::kProtocol, "the shared memory of this node is not one of " + std::to_string(local_size) +
                                      " ranks; all ranks must run one libhvd");
  }
  bytes = bytes_before_arena;
  HVD_TRY_ASSIGN(base, map(memory.get(), bytes));
  return std::unique_ptr<ShmSegment>(
      new ShmSegment(std::move(memory), base, bytes, local_size, slot_bytes, local_rank));
}

std::uint8_t* ShmSegment::lane(int local_rank) const {
  return base_ + bytes_before_lane(local_rank);
}

std::size_t ShmSegment::arena_at(int local_rank) const {
  return mapped_bytes_ + static_cast<std::size_t>(local_rank) * arena_bytes_;
}

std::uint8_t* ShmSegment::arena(int local_rank) const {
  return arena_ + static_cast<std::size_t>(local_rank) * arena_bytes_;
}

Result<void> ShmSegment::reserve(std::size_t offset, std::size_t size_bytes) {
  HVD_CHECK(offset + size_bytes <= arena_bytes_);
  if (arena_ == nullptr) {
    const std::size_t bytes = arena_bytes_ * static_cast<std::size_t>(local_size_);
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(),
                        static_cast<off_t>(arena_at(0)));
    if (base == MAP_FAILED) {
      return Error(Code::kResource, Error::from_errno("mmap of " + std::to_string(bytes >> 30U) +
                                                      " GiB of addresses for shared buffers; see ulimit -v")
                                        .message());
    }
    // Without this, a core dump would touch every page of it, and so allocate it.
    ::madvise(base, bytes, MADV_DONTDUMP);
    arena_ = static_cast<std::uint8_t*>(base);
  }
  // The memory is allocated now, because running out of it at the first touch raises a signal.
  const auto at = static_cast<off_t>(arena_at(local_rank_) + offset);
  int failed = 0;
  do {
    failed = ::fallocate(memory_.get(), 0, at, static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed != 0) {
    punch(offset, size_bytes);
    return Error(Code::kResource, "no " + std::to_string(size_bytes) + " bytes of shared memory for a buffer");
  }
  reserved_.emplace(offset, size_bytes);
  return {};
}

void ShmSegment::release(std::size_t offset, std::size_t size_bytes) {
  HVD_CHECK(reserved_.erase(offset) == 1);
  punch(offset, size_bytes);
}

// If this fails, the memory is freed with the segment.
void ShmSegment::punch(std::size_t offset, std::size_t size_bytes) {
  ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(arena_at(local_rank_) + offset), static_cast<off_t>(size_bytes));
}

ShmRing ShmSegment::ring_to_leader(int local_rank) const {
  return ShmRing(lane(local_rank) + kPageBytes);
}

ShmRing ShmSegment::ring_from_leader(int local_rank) const {
  return ShmRing(lane(local_rank) + kPageBytes + ShmRing::kBytes);
}

int ShmSegment::spins() const {
  return local_size_ <= core_count() ? kSpins : 0;
}

int ShmSegment::core_count() const {
  return control_->core_count();
}

Result<void> ShmSegment::barrier(Interrupt& interrupt) {
  const std::uint32_t generation = control_->generation.load(std::memory_order_acquire);
  const std::uint32_t before = control_->arrived.fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 < static_cast<std::uint32_t>(local_size_)) {
    return wait_for_generation(generation, interrupt);
  }
  control_->arrived.store(0, std::memory_order_relaxed);
  // Sequentially consistent with `sleepers`: either this sees a sleeper, or the sleeper sees the new generation.
  control_->generation.store(generation + 1, std::memory_order_seq_cst);
  if (control_->sleepers.load(std::memory_order_seq_cst) != 0) {
    futex_wake_all(control_->generation);
  }
  return {};
}

Result<void> ShmSegment::wait_for_generation(std::uint32_t old_generation, Interrupt& interrupt) {
  const auto is_over = [&] { return control_->generation.load(std::memory_order_acquire) != old_generation; };
  if (!spins_) {
    // The count is taken at the first wait, not before, because by then the other ranks have added their cores.
    spins_ = spins();
  }
  for (int i = 0; i < *spins_; ++i) {
    if (is_over()) {
      return {};
    }
    pause_briefly();
  }
  for (int i = 0; i < kYields; ++i) {
    if (is_over()) {
      return {};
    }
    if (!give_way()) {
      break;
    }
  }
  for (;;) {
    control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    // This is checked again after this rank has been counted: a rank that leaves wakes only those that already sleep.
    // The generation's load is sequentially consistent too: an acquire load could be carried out before the count.
    if (control_->generation.load(std::memory_order_seq_cst) == old_generation &&
        control_->left.load(std::memory_order_seq_cst) == 0) {
      interrupt.note_sleep();
      futex_wait(control_->generation, old_generation);
    }
    control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (is_over()) {
      return {};
    }
    HVD_TRY(interrupt.check());
    if (const std::uint32_t left = control_->left.load(std::memory_order_seq_cst); left != 0 && !is_over()) {
      return Error(Code::kLostPeer, "local rank " + std::to_string(left - 1) + " of this node has left the job");
    }
  }
}

Result<void> ShmSegment::send_fd(int socket, int fd) {
  char byte = 'M';
  iovec body{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != 1) {
    return Error::from_errno("handing over the shared memory");
  }
  return {};
}

Result<Fd> ShmSegment::receive_fd(int socket) {
  char byte = 0;
  iovec body{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) {
    return Fd();
  }
  if (got < 0) {
    return Error::from_errno("receiving the shared memory");
  }
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return Error(Code::kProtocol, "the connection ended before the shared memory came");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Fd(fd);
}

}  // namespace hvd
