#include "runtime/observe/activity.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <string>

#include "runtime/base/clock.h"

namespace hvd {
namespace {

template <std::size_t size>
void put(std::array<char, size>& to, std::string_view text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = '\0';
}

}  // namespace

Activity::Activity(int rank) : memory_(::memfd_create(ActivityPage::kFileName, MFD_CLOEXEC)) {
  if (memory_.is_open() && resize_file(memory_.get(), sizeof(ActivityPage))) {
    void* memory = ::mmap(nullptr, sizeof(ActivityPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
    if (memory != MAP_FAILED) {
      page_ = new (memory) ActivityPage;
    }
  }
  page_->rank = rank;
  page_->opened_ns = steady_ns();
  page_->opened_ticks = ticks_now();
}

Activity::~Activity() {
  page_->has_ended.store(1, std::memory_order_relaxed);
  if (page_ != &own_) {
    ::munmap(page_, sizeof(ActivityPage));
  }
}

void Activity::add(const Step& step) {
  ActivityCounts& counts = page_->counts[static_cast<std::size_t>(step.kind)];
  raise(counts.operations, step.operations);
  raise(counts.bytes, step.bytes);
  const std::uint64_t from = std::max(step.asked_at, last_ended_at_);
  last_ended_at_ = std::max(last_ended_at_, step.ended_at);
  raise(counts.lasted_ticks, ticks_between(from, step.ended_at));
  raise(counts.waited_ticks, ticks_between(from, step.known_at));
}

void Activity::show(OpKind kind, std::string_view name, std::uint64_t asked_at_ticks) {
  const std::string operation = lower_name_of(kind);
  const double age_ns =
      static_cast<double>(ticks_between(asked_at_ticks, ticks_now())) * scale_.seconds_per_tick() * 1e9;
  const std::uint64_t now = steady_ns();
  write(operation, name, now - std::min(now, static_cast<std::uint64_t>(age_ns)));
}

void Activity::clear() {
  write("", "", 0);
}

void Activity::write(std::string_view operation, std::string_view tensor, std::uint64_t asked_ns) {
  const std::uint32_t turn = page_->turn.load(std::memory_order_relaxed);
  page_->turn.store(turn + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  put(page_->operation, operation);
  put(page_->tensor, tensor);
  page_->asked_ns = asked_ns;
  page_->turn.store(turn + 2, std::memory_order_release);
}

}  // namespace hvd
