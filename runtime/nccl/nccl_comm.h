// NcclComm is one communicator of NCCL. It is non-blocking throughout: this class waits for calls that NCCL has not
// finished yet, and meanwhile checks the job and a deadline. abort() ends every such wait and the work on the device.
//
// Thread: any (mutex mu_). No call holds the mutex for long, except launch() with NCCL before 2.22, which launches
// within the call; other calls may then wait. Only the engine makes calls that wait.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/interrupt.h"
#include "runtime/device/device.h"
#include "runtime/nccl/nccl_library.h"

namespace hvd {

class NcclComm {
 public:
  // Place is this rank's place in the communicator.
  struct Place {
    int rank = 0;
    int size = 1;
  };

  static Result<NcclId> make_id(const NcclLibrary& nccl, Device& device);
  // Makes the communicator; blocks until all `size` ranks have called it with this id. Fails with kTimeout, or the
  // interrupt's error.
  static Result<std::shared_ptr<NcclComm>> make(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device,
                                                const NcclId& id, Place place, Interrupt& interrupt, Deadline deadline);
  // Makes a communicator of those ranks that pass the same color, in the order of their ranks. With kNcclNoColor the
  // result is null. All ranks call it at the same point, with nothing running. If it fails, this communicator is
  // aborted.
  Result<std::shared_ptr<NcclComm>> split(int color, Place place, Interrupt& interrupt, Deadline deadline);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Runs `body`, whose calls form one group that is launched together. Blocks until they are launched, not until they
  // are done. Returns the first error of the calls or of the group.
  using Body = std::function<Result<void>(const NcclFunctions& calls, NcclHandle comm)>;
  Result<void> launch(const Body& body, Interrupt& interrupt);

  // NcclBuffer uses these: GPU memory from NCCL, and its registration, after which calls on it need no copy. Memory
  // stays registered until deregister(), or the end of the communicator. Only if NcclLibrary::has_memory.
  Result<void*> allocate(std::size_t size_bytes);
  void free_memory(void* data);
  Result<void*> register_memory(void* data, std::size_t size_bytes);
  void deregister(void* registration);

  // Returns what has failed since, on the network or on another rank. It is OK after abort(), and while another call is
  // running. Never blocks.
  Result<void> async_error();
  // Ends the communicator and all its work on the device. It may be called any number of times. The first call blocks
  // until NCCL has finished, which may be until the whole device is idle (NCCL frees memory); see abort_all().
  void abort();
  // Ends it in order, when all ranks do so and nothing is running; aborts it if that takes too long. Call it once.
  Result<void> finish(Interrupt& interrupt, Deadline deadline);

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] const NcclLibrary& library() const { return *nccl_; }
  Result<void> check(NcclCode code, const char* function) const { return nccl_->check(code, function, handle_); }

 private:
  NcclComm(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device, Place place)
      : nccl_(std::move(nccl)), device_(std::move(device)), place_(place) {}
  // Waits until the call is finished.
  Result<void> settle(const char* function, Interrupt& interrupt, Deadline deadline);
  Result<bool> is_settled(const char* function);
  Result<void> finalize();
  NcclHandle take_handle();

  // constant after construction
  const std::shared_ptr<const NcclLibrary> nccl_;
  const std::shared_ptr<Device> device_;
  const Place place_;
  // guarded by mu_
  std::mutex mu_;
  NcclHandle handle_ = nullptr;       // null: ended
  std::vector<void*> registrations_;  // registrations that the communicator still has
  // NCCL writes the handle of a split here, even after the wait for it was given up. split() reads it, and so does the
  // code after handle_ has been aborted.
  NcclHandle child_ = nullptr;
};

// Aborts the communicators in parallel: NCCL's abort of one may wait until the device is idle, and so for the work of
// another. It asks `may_wait` again and again while one has not finished, and returns false when that does. A thread
// then keeps the communicator, and its work on the device may continue.
bool abort_all(std::span<const std::shared_ptr<NcclComm>> comms, const std::function<bool()>& may_wait);

}  // namespace hvd
