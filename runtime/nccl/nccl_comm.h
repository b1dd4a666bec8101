// NcclComm: one communicator of NCCL's, non-blocking throughout: a call that NCCL has not done yet is waited for here,
// with an eye on the job and on a deadline, and abort() ends every such wait and what runs on the device.
//
// Thread: any (mutex mu_). No call holds it for long, but for launch() with NCCL before 2.22, which launches within the
// call; so the others may wait there. Calls that wait are the engine's.
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
  // Where this rank is in it.
  struct Place {
    int rank = 0;
    int size = 1;
  };

  static Result<NcclId> make_id(const NcclLibrary& nccl, Device& device);
  // Blocks until all `size` ranks have come with this id; kTimeout, or the interrupt's error.
  static Result<std::shared_ptr<NcclComm>> make(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device,
                                                const NcclId& id, Place place, Interrupt& interrupt, Deadline deadline);
  // Those ranks of this one that name the same color (kNcclNoColor: none, and the result is null), in the order of
  // their ranks. All ranks of this one call it at the same place of their calls, with nothing under way. When it fails
  // this one is aborted.
  Result<std::shared_ptr<NcclComm>> split(int color, Place place, Interrupt& interrupt, Deadline deadline);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Calls that `body` makes are one group: they are launched together. Blocks until they are launched, not until they
  // are done. The first error of them, or of the group.
  using Body = std::function<Result<void>(const NcclFunctions& calls, NcclHandle comm)>;
  Result<void> launch(const Body& body, Interrupt& interrupt);

  // For NcclBuffer. Memory of the device, from NCCL; registered, calls on it need no copy. What is registered is so
  // until deregister(), or the communicator's end. Only where NcclLibrary::has_memory.
  Result<void*> allocate(std::size_t size_bytes);
  void free_memory(void* data);
  Result<void*> register_memory(void* data, std::size_t size_bytes);
  void deregister(void* registration);

  // What has failed since, on the network or another rank. OK after abort(), and while another call is under way. Never
  // blocks.
  Result<void> async_error();
  // Ends it, and all that it has under way on the device. Any number of times: the first blocks until NCCL is through
  // with it, which may be until the whole device is idle (NCCL gives memory back); see abort_all().
  void abort();
  // Ends it in order, when all ranks do, and nothing is under way; aborts it when that takes longer. Once.
  Result<void> finish(Interrupt& interrupt, Deadline deadline);

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] const NcclLibrary& library() const { return *nccl_; }
  Result<void> check(NcclCode code, const char* function) const { return nccl_->check(code, function, handle_); }

 private:
  NcclComm(std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<Device> device, Place place)
      : nccl_(std::move(nccl)), device_(std::move(device)), place_(place) {}
  // Until what was called is through.
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
  std::vector<void*> registrations_;  // that the communicator still has
  // Where NCCL writes the handle of what is being split off: also when nobody waits for that any more. Read by split(),
  // and once handle_ has been aborted.
  NcclHandle child_ = nullptr;
};

// Aborts them side by side: NCCL's abort of one may wait until the device is idle, and so for what another has under
// way there. False when one is not through by the deadline; then a thread of its own keeps it, and what is on the
// device may go on.
bool abort_all(std::span<const std::shared_ptr<NcclComm>> comms, Deadline deadline);

}  // namespace hvd
