// DeviceExecutor carries one Response out on the memory of this rank's GPU, for one process set. It works on a stream
// of its own, after the work of the callers' streams, and does not wait for the end. The data moves by NCCL, or through
// the host's memory and the Executor of CPU operations, as the ranks of the set have agreed.
//
// Thread: engine only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/controller/message.h"
#include "runtime/core/rank_map.h"
#include "runtime/device/kernels.h"
#include "runtime/execute/executor.h"
#include "runtime/execute_device/device_finisher.h"
#include "runtime/execute_device/device_pool.h"
#include "runtime/execute_device/device_setup.h"
#include "runtime/nccl/nccl_backend.h"
#include "runtime/nccl/nccl_buffer.h"

namespace hvd {

class DeviceExecutor {
 public:
  // Host is what the set's ranks use for operations on the host.
  struct Host {
    RankMap map;
    std::vector<int> ranks;  // ranks of the job, ascending
    Backend& backend;
    Executor& executor;
  };
  // `comm` is null if the plan uses no NCCL. `pool` is null on a rank that has no device, which only takes part with
  // stand-ins.
  static Result<std::unique_ptr<DeviceExecutor>> make(Host host, std::shared_ptr<DevicePool> pool, DevicePlan plan,
                                                      std::shared_ptr<NcclComm> comm);

  // Works as Executor::run, but the outputs are complete only when batch.done is. The batch keeps alive what the
  // operations need until then.
  Result<void> run(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt);

  [[nodiscard]] const std::shared_ptr<NcclComm>& comm() const { return comm_; }
  [[nodiscard]] const Host& host() const { return host_; }
  [[nodiscard]] const DevicePlan& plan() const { return plan_; }
  // Returns why buffers are slower than they could be; empty after the first call, and if there is no reason.
  std::string take_notice() { return std::exchange(notice_, {}); }

 private:
  DeviceExecutor(Host host, std::shared_ptr<DevicePool> pool, DevicePlan plan, std::shared_ptr<NcclComm> comm)
      : host_(std::move(host)), pool_(std::move(pool)), plan_(std::move(plan)), comm_(std::move(comm)) {}
  [[nodiscard]] bool goes_by_nccl(const Response& response, const Submission& like) const;
  Result<void> wait_for_callers(std::span<PendingOp* const> ops);
  // Places zeros on the device for operations that this rank has not asked for.
  Result<void> place_stand_ins(std::span<PendingOp* const> ops, DeviceBatch& batch);
  Result<std::uint8_t*> reserve(std::size_t size_bytes, DeviceBatch& batch);
  Result<std::uint8_t*> reserve_registered(std::size_t size_bytes, DeviceBatch& batch, Interrupt& interrupt);
  Result<void> grow_registered(std::size_t size_bytes, Interrupt& interrupt);
  Result<OwnedOutput> allocate(const Submission& what, std::int64_t rows, DeviceBatch& batch);

  Result<void> launch(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                      Interrupt& interrupt);
  Result<void> run_nccl(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                        Interrupt& interrupt);
  Result<void> allreduce(std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt);
  Result<void> adasum(PendingOp& op, DeviceBatch& batch, Interrupt& interrupt);
  Result<void> broadcast(PendingOp& op, Interrupt& interrupt);
  Result<void> allgather(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                         Interrupt& interrupt);
  Result<void> reducescatter(std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt);
  Result<void> alltoall(PendingOp& op, DeviceBatch& batch, Interrupt& interrupt);

  // The next functions move data through the host.
  Result<void> run_staged(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                          Interrupt& interrupt);
  Result<std::uint8_t*> reserve_pinned(std::size_t size_bytes);
  Result<void> fetch_inputs(std::span<PendingOp* const> ops, std::span<PendingOp> twins, Interrupt& interrupt);
  Result<void> put_result(PendingOp& op, PendingOp& twin, DeviceBatch& batch);
  Result<void> wait_on_host(const Event& event, Interrupt& interrupt) const;

  // constant after make()
  const Host host_;
  const std::shared_ptr<DevicePool> pool_;
  const DevicePlan plan_;
  const std::shared_ptr<NcclComm> comm_;
  DeviceStream stream_;
  std::optional<NcclBackend> nccl_;
  std::optional<DeviceKernels> kernels_;

  // The memory into which tensors are packed for a reduction. If NCCL can allocate memory it is NCCL's: each buffer is
  // twice as large as the one before, and all are kept to the end, since freeing one may wait for the device. Otherwise
  // it is the pool's.
  std::vector<NcclBuffer> registered_;
  bool can_register_ = false;
  std::string notice_;
  std::shared_ptr<DeviceBlock> buffer_;  // shared with the batches that use it
  std::vector<PinnedMemory> pinned_;     // likewise each twice as large as the one before, and all kept to the end
};

}  // namespace hvd
