#include "runtime/core/completion.h"

#include <new>
#include <string>

namespace hvd {

Result<OwnedOutput> OwnedOutput::allocate(std::size_t size_bytes, std::vector<std::int64_t> shape) {
  OwnedOutput output;
  // Allocate at least one byte, so that an empty result has an address too: callers take NULL for "no result".
  output.data.reset(new (std::nothrow) std::byte[size_bytes == 0 ? 1 : size_bytes]);
  if (output.data == nullptr) {
    return Error(Code::kResource, "out of memory: no " + std::to_string(size_bytes) + " bytes for a result");
  }
  output.size_bytes = size_bytes;
  output.shape = std::move(shape);
  return output;
}

void Completion::finish(Result<void> result) {
  settle(std::move(result), std::nullopt, nullptr);
}

void Completion::finish(OwnedOutput output) {
  settle({}, std::move(output), nullptr);
}

void Completion::finish(std::optional<OwnedOutput> output, std::shared_ptr<DeviceTicket> ticket) {
  settle({}, std::move(output), std::move(ticket));
}

void Completion::settle(Result<void> result, std::optional<OwnedOutput> output, std::shared_ptr<DeviceTicket> ticket) {
  {
    std::unique_lock lock(mu_);
    HVD_CHECK(!is_settled_);
    result_ = std::move(result);
    output_ = std::move(output);
    ticket_ = std::move(ticket);
    is_settled_ = true;
    if (listener_) {
      lock.unlock();  // it changes no more, and the listener may call back into this object
      listener_(result_);
      lock.lock();
    }
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

Result<void> Completion::tell(Listener listener) {
  {
    const std::lock_guard lock(mu_);
    if (has_listener_) {
      return Error(Code::kInvalid, "this operation has a listener already");
    }
    has_listener_ = true;
    if (!is_settled_) {
      listener_ = std::move(listener);
      return {};
    }
  }
  listener(result_);
  return {};
}

const Result<void>& Completion::wait() const {
  if (!is_done()) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return done_.load(std::memory_order_relaxed); });
  }
  return result_;
}

bool Completion::wait_until(const Deadline& deadline) const {
  if (is_done()) {
    return true;
  }
  std::unique_lock lock(mu_);
  return changed_.wait_until(lock, deadline.at(), [this] { return done_.load(std::memory_order_relaxed); });
}

bool Completion::has_listener() const {
  const std::lock_guard lock(mu_);
  return has_listener_;
}

const std::optional<OwnedOutput>& Completion::output() const {
  HVD_CHECK(is_done());
  return output_;
}

const std::shared_ptr<DeviceTicket>& Completion::ticket() const {
  HVD_CHECK(is_done());
  return ticket_;
}

}  // namespace hvd
