#include "runtime/nccl/nccl_comm.h"

#include <sched.h>

#include <condition_variable>
#include <thread>
#include <utility>

#include "runtime/base/thread.h"

namespace hvd {
namespace {

constexpr int kYields = 1000;                              // before a wait sleeps between its looks
constexpr Duration kNap = std::chrono::microseconds(100);  // the sleep between looks after that
// the first launch of a kind connects the ranks; the end of the job ends the wait earlier
constexpr Duration kLaunchTime = std::chrono::seconds(60 * 60);

Error ended() {
  return Error(Code::kLostPeer, "the NCCL communicator has been aborted");
}

}  // namespace

Result<NcclId> NcclComm::make_id(const NcclLibrary& nccl, Device& device) {
  HVD_TRY_ASSIGN(const auto current, Current::make(device));
  NcclId id;
  HVD_TRY(nccl.check(nccl.calls().get_unique_id(&id), "ncclGetUniqueId", nullptr));
  return id;
}

Result<std::shared_ptr<NcclComm>> NcclComm::make(std::shared_ptr<const NcclLibrary> nccl,
                                                 std::shared_ptr<Device> device, const NcclId& id, Place place,
                                                 Interrupt& interrupt, Deadline deadline) {
  std::shared_ptr<NcclComm> made(new NcclComm(std::move(nccl), std::move(device), place));
  {
    HVD_TRY_ASSIGN(const auto current, Current::make(*made->device_));
    const std::lock_guard lock(made->mu_);
    NcclConfig config;
    const NcclCode code =
        made->nccl_->calls().comm_init_rank_config(&made->handle_, place.size, id, place.rank, &config);
    HVD_TRY(made->nccl_->check(code, "ncclCommInitRankConfig", nullptr));
  }
  HVD_TRY(made->settle("ncclCommInitRankConfig", interrupt, deadline));
  return made;
}

Result<std::shared_ptr<NcclComm>> NcclComm::split(int color, Place place, Interrupt& interrupt, Deadline deadline) {
  auto split = [&]() -> Result<void> {
    {
      HVD_TRY_ASSIGN(const auto current, Current::make(*device_));
      const std::lock_guard lock(mu_);
      if (handle_ == nullptr) {
        return ended();
      }
      HVD_TRY(check(nccl_->calls().comm_split(handle_, color, place.rank, &child_, nullptr), "ncclCommSplit"));
    }
    return settle("ncclCommSplit", interrupt, deadline);
  }();
  if (!split.ok()) {
    abort();  // NCCL may still write the child's handle
    return split.error();
  }
  std::shared_ptr<NcclComm> made(new NcclComm(nccl_, device_, place));
  {
    const std::lock_guard lock(mu_);
    made->handle_ = std::exchange(child_, nullptr);
  }
  if (color == kNcclNoColor) {
    return std::shared_ptr<NcclComm>();
  }
  HVD_TRY(made->settle("ncclCommSplit", interrupt, deadline));
  return made;
}

NcclComm::~NcclComm() {
  abort();
}

Result<void> NcclComm::launch(const Body& body, Interrupt& interrupt) {
  {
    HVD_TRY_ASSIGN(const auto current, Current::make(*device_));
    const std::lock_guard lock(mu_);
    if (handle_ == nullptr) {
      return ended();
    }
    const NcclFunctions& calls = nccl_->calls();
    HVD_TRY(check(calls.group_start(), "ncclGroupStart"));
    const Result<void> called = body(calls, handle_);
    // also after a failure, since NCCL counts begins and ends
    const Result<void> done = check(calls.group_end(), "ncclGroupEnd");
    HVD_TRY(called);
    HVD_TRY(done);
  }
  return settle("ncclGroupEnd", interrupt, Deadline::after(kLaunchTime));
}

Result<bool> NcclComm::is_settled(const char* function) {
  const std::lock_guard lock(mu_);
  if (handle_ == nullptr) {
    return ended();
  }
  NcclCode state = NcclCode::kSuccess;
  HVD_TRY(check(nccl_->calls().comm_get_async_error(handle_, &state), "ncclCommGetAsyncError"));
  HVD_TRY(check(state, function));
  return state != NcclCode::kInProgress;
}

Result<void> NcclComm::settle(const char* function, Interrupt& interrupt, Deadline deadline) {
  Patience patience(deadline);
  for (int looks = 0;; ++looks) {
    HVD_TRY_ASSIGN(const bool is_through, is_settled(function));
    if (is_through) {
      return {};
    }
    HVD_TRY(interrupt.check());
    if (patience.is_over()) {
      return Error(Code::kTimeout, std::string(function) +
                                       ": not all ranks came within HOROVOD_START_TIMEOUT; NCCL_DEBUG=INFO shows more");
    }
    if (looks < kYields) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

Result<void> NcclComm::async_error() {
  const std::unique_lock lock(mu_, std::try_to_lock);
  if (!lock.owns_lock() || handle_ == nullptr) {
    return {};
  }
  NcclCode state = NcclCode::kSuccess;
  HVD_TRY(check(nccl_->calls().comm_get_async_error(handle_, &state), "ncclCommGetAsyncError"));
  return check(state, "NCCL");
}

Result<void*> NcclComm::allocate(std::size_t size_bytes) {
  HVD_TRY_ASSIGN(const auto current, Current::make(*device_));
  void* data = nullptr;
  HVD_TRY(nccl_->check(nccl_->calls().mem_alloc(&data, size_bytes), "ncclMemAlloc", nullptr));
  return data;
}

void NcclComm::free_memory(void* data) {
  auto current = Current::make(*device_);
  // The memory has no owner any more, and no caller is left that could handle a failure; what NCCL does not free ends
  // with the process.
  static_cast<void>(nccl_->calls().mem_free(data));
}

Result<void*> NcclComm::register_memory(void* data, std::size_t size_bytes) {
  HVD_TRY_ASSIGN(const auto current, Current::make(*device_));
  const std::lock_guard lock(mu_);
  if (handle_ == nullptr) {
    return ended();
  }
  void* registration = nullptr;
  HVD_TRY(check(nccl_->calls().comm_register(handle_, data, size_bytes, &registration), "ncclCommRegister"));
  // null: NCCL was told not to register, or could not; before 2.23 deregistering null fails
  if (registration != nullptr) {
    registrations_.push_back(registration);
  }
  return registration;
}

void NcclComm::deregister(void* registration) {
  auto current = Current::make(*device_);
  const std::lock_guard lock(mu_);
  if (handle_ != nullptr && std::erase(registrations_, registration) != 0) {
    // If this fails, the communicator keeps the registration until its own end.
    static_cast<void>(nccl_->calls().comm_deregister(handle_, registration));
  }
}

// Takes the handle away, so that no other call uses it from now on.
NcclHandle NcclComm::take_handle() {
  const std::lock_guard lock(mu_);
  registrations_.clear();
  return std::exchange(handle_, nullptr);
}

void NcclComm::abort() {
  const NcclHandle handle = take_handle();
  if (handle == nullptr) {
    return;
  }
  auto current = Current::make(*device_);  // without it NCCL may still succeed
  // If this fails, nothing is left to try.
  static_cast<void>(nccl_->calls().comm_abort(handle));
  NcclHandle child = nullptr;
  {
    const std::lock_guard lock(mu_);
    child = std::exchange(child_, nullptr);
  }
  if (child != nullptr) {
    static_cast<void>(nccl_->calls().comm_abort(child));
  }
}

Result<void> NcclComm::finalize() {
  HVD_TRY_ASSIGN(const auto current, Current::make(*device_));
  const std::lock_guard lock(mu_);
  if (handle_ == nullptr) {
    return {};
  }
  for (void* registration : std::exchange(registrations_, {})) {
    HVD_TRY(check(nccl_->calls().comm_deregister(handle_, registration), "ncclCommDeregister"));
  }
  return check(nccl_->calls().comm_finalize(handle_), "ncclCommFinalize");
}

Result<void> NcclComm::finish(Interrupt& interrupt, Deadline deadline) {
  const auto finished = [&]() -> Result<void> {
    HVD_TRY(finalize());
    HVD_TRY(settle("ncclCommFinalize", interrupt, deadline));
    HVD_TRY_ASSIGN(const auto current, Current::make(*device_));
    const NcclHandle handle = take_handle();
    return handle == nullptr ? Result<void>()
                             : nccl_->check(nccl_->calls().comm_destroy(handle), "ncclCommDestroy", nullptr);
  }();
  abort();
  return finished;
}

bool abort_all(std::span<const std::shared_ptr<NcclComm>> comms, const std::function<bool()>& may_wait) {
  struct Count {
    std::mutex mu;
    std::condition_variable changed;
    std::size_t left;  // guarded by mu
  };
  const auto count = std::make_shared<Count>();
  count->left = comms.size();
  std::vector<std::thread> threads;
  for (const auto& comm : comms) {
    threads.push_back(start_thread("hvd-abort", [comm = std::shared_ptr(comm), count]() mutable {
      comm->abort();
      comm.reset();
      const std::lock_guard lock(count->mu);
      --count->left;
      count->changed.notify_all();
    }));
  }
  std::unique_lock lock(count->mu);
  while (count->left != 0 && may_wait()) {
    count->changed.wait_for(lock, kNap);
  }
  const bool are_through = count->left == 0;
  lock.unlock();
  for (std::thread& thread : threads) {
    are_through ? thread.join() : thread.detach();
  }
  return are_through;
}

}  // namespace hvd
