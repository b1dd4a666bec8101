// DeviceExecutor: carries one Response out on memory of this rank's device, for one process set: on a stream of its
// own, behind what the callers' streams do, and without waiting for the end. By NCCL, or through the host's memory and
// the Executor of CPU operations, as the ranks of the set have agreed.
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
  // The set's ranks on the host.
  struct Host {
    RankMap map;
    std::vector<int> ranks;  // of the job, ascending
    Backend& backend;
    Executor& executor;
  };
  // `comm`: null where the plan uses no NCCL. `pool`: null on a rank that has no device, and then only stands in.
  static Result<std::unique_ptr<DeviceExecutor>> make(Host host, std::shared_ptr<DevicePool> pool, DevicePlan plan,
                                                      std::shared_ptr<NcclComm> comm);

  // As Executor::run, but that outputs are filled when flight.done is. What it needs until then it leaves in the
  // flight.
  Result<void> run(const Response& response, std::span<PendingOp* const> ops, Flight& flight, Interrupt& interrupt);

  [[nodiscard]] const std::shared_ptr<NcclComm>& comm() const { return comm_; }
  [[nodiscard]] const Host& host() const { return host_; }
  [[nodiscard]] const DevicePlan& plan() const { return plan_; }
  // Why buffers are not as they could be; once, and empty otherwise.
  std::string take_notice() { return std::exchange(notice_, {}); }

 private:
  DeviceExecutor(Host host, std::shared_ptr<DevicePool> pool, DevicePlan plan, std::shared_ptr<NcclComm> comm)
      : host_(std::move(host)), pool_(std::move(pool)), plan_(std::move(plan)), comm_(std::move(comm)) {}
  [[nodiscard]] bool goes_by_nccl(const Response& response, const Submission& like) const;
  Result<void> wait_for_callers(std::span<PendingOp* const> ops);
  // Zeros on the device for what this rank has not asked for.
  Result<void> place_stand_ins(std::span<PendingOp* const> ops, Flight& flight);
  Result<std::uint8_t*> reserve(std::size_t size_bytes, Flight& flight);
  Result<std::uint8_t*> reserve_registered(std::size_t size_bytes, Flight& flight, Interrupt& interrupt);
  Result<void> grow_registered(std::size_t size_bytes, Interrupt& interrupt);
  Result<OwnedOutput> allocate(const Submission& what, std::int64_t rows, Flight& flight);

  Result<void> launch(const Response& response, std::span<PendingOp* const> ops, Flight& flight, Interrupt& interrupt);
  Result<void> run_nccl(const Response& response, std::span<PendingOp* const> ops, Flight& flight,
                        Interrupt& interrupt);
  Result<void> allreduce(std::span<PendingOp* const> ops, Flight& flight, Interrupt& interrupt);
  Result<void> adasum(PendingOp& op, Flight& flight, Interrupt& interrupt);
  Result<void> broadcast(PendingOp& op, Interrupt& interrupt);
  Result<void> allgather(const Response& response, std::span<PendingOp* const> ops, Flight& flight,
                         Interrupt& interrupt);
  Result<void> reducescatter(std::span<PendingOp* const> ops, Flight& flight, Interrupt& interrupt);
  Result<void> alltoall(PendingOp& op, Flight& flight, Interrupt& interrupt);

  // Through the host (device_staging.cpp).
  Result<void> run_staged(const Response& response, std::span<PendingOp* const> ops, Flight& flight,
                          Interrupt& interrupt);
  Result<std::uint8_t*> reserve_pinned(std::size_t size_bytes, Flight& flight);
  Result<void> fetch_inputs(std::span<PendingOp* const> ops, std::span<PendingOp> twins, Flight& flight,
                            Interrupt& interrupt);
  Result<void> put_result(PendingOp& op, PendingOp& twin, Flight& flight);
  Result<void> wait_on_host(const Event& event, Interrupt& interrupt) const;

  // constant after make()
  const Host host_;
  const std::shared_ptr<DevicePool> pool_;
  const DevicePlan plan_;
  const std::shared_ptr<NcclComm> comm_;
  Stream stream_;
  std::optional<NcclBackend> nccl_;
  std::optional<DeviceKernels> kernels_;

  // What tensors are packed into to be reduced: NCCL's own memory where it has some, of which each is twice as large as
  // the one before and all stay to the end, since to free one may wait for the device; else the pool's.
  std::vector<NcclBuffer> registered_;
  bool can_register_ = false;
  std::string notice_;
  std::shared_ptr<DeviceBlock> buffer_;   // shared with the flights that use it
  std::shared_ptr<PinnedMemory> pinned_;  // likewise
};

}  // namespace hvd
