// Operations on devices through the host's memory: inputs are copied to pinned memory, the CPU's Executor works on
// copies of the operations there, and results are copied back. See device_executor.h.
#include <sched.h>

#include <thread>

#include "runtime/execute_device/device_executor.h"

namespace hvd {
namespace {

constexpr std::size_t kGrain = 64;  // alignment of each tensor in pinned memory
constexpr int kYields = 1000;
constexpr Duration kNap = std::chrono::microseconds(50);

std::size_t padded(std::size_t size_bytes) {
  return (size_bytes + kGrain - 1) / kGrain * kGrain;
}

bool is_on_device(const PendingOp& op) {
  return op.what.device >= 0;
}

bool reads_input(const PendingOp& op, int own_rank) {
  return op.what.kind != OpKind::kBroadcast || op.what.root_rank == own_rank;
}

}  // namespace

Result<void> DeviceExecutor::wait_on_host(const Event& event, Interrupt& interrupt) const {
  for (int looks = 0;; ++looks) {
    HVD_TRY_ASSIGN(const bool is_done, event.is_done());
    if (is_done) {
      return {};
    }
    HVD_TRY(interrupt.check());
    if (looks < kYields) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

Result<std::uint8_t*> DeviceExecutor::reserve_pinned(std::size_t size_bytes, DeviceBatch& batch) {
  if (pinned_ == nullptr || pinned_->size_bytes() < size_bytes) {
    HVD_TRY_ASSIGN(PinnedMemory made, PinnedMemory::make(pool_->device(), std::max<std::size_t>(size_bytes, kGrain)));
    pinned_ = std::make_shared<PinnedMemory>(std::move(made));
  }
  batch.keeps.push_back(pinned_);
  return pinned_->data();
}

// The copy runs after the previous operation's copy back from the same memory, since one stream does both. So once this
// copy has arrived, the host may write to that memory.
Result<void> DeviceExecutor::fetch_inputs(std::span<PendingOp* const> ops, std::span<PendingOp> twins,
                                          DeviceBatch& batch, Interrupt& interrupt) {
  std::size_t total = 0;
  for (const PendingOp* op : ops) {
    total += is_on_device(*op) ? padded(input_bytes(op->what)) : 0;
  }
  if (pool_ == nullptr) {
    return {};  // this rank only takes part with stand-ins
  }
  HVD_TRY_ASSIGN(std::uint8_t* at, reserve_pinned(total, batch));
  const int own_rank = host_.ranks[static_cast<std::size_t>(host_.map.rank)];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::size_t bytes = input_bytes(ops[i]->what);
    if (!is_on_device(*ops[i])) {
      continue;
    }
    if (bytes != 0 && reads_input(*ops[i], own_rank)) {
      HVD_TRY(pool_->device()->copy(at, ops[i]->what.input, bytes, stream_.handle()));
    }
    twins[i].what.input = at;
    twins[i].what.output = is_cut_by_rank(twins[i].what.kind) ? nullptr : at;
    at += padded(bytes);
  }
  HVD_TRY_ASSIGN(const auto down, pool_->event_on(stream_.handle()));
  return wait_on_host(*down, interrupt);
}

Result<void> DeviceExecutor::put_result(PendingOp& op, PendingOp& twin, DeviceBatch& batch) {
  if (!twin.output) {
    const std::size_t bytes = input_bytes(op.what);
    return bytes == 0 ? Result<void>()
                      : pool_->device()->copy(op.what.output, twin.what.output, bytes, stream_.handle());
  }
  OwnedOutput& below = *twin.output;
  HVD_TRY_ASSIGN(auto block, pool_->block(below.size_bytes, stream_.handle()));
  if (below.size_bytes != 0) {
    HVD_TRY(pool_->device()->copy(block->data(), below.data.get(), below.size_bytes, stream_.handle()));
  }
  batch.keeps.push_back(block);
  op.output.emplace();
  op.output->size_bytes = below.size_bytes;
  op.output->shape = std::move(below.shape);
  op.output->received_splits = std::move(below.received_splits);
  op.output->device = std::move(block);
  batch.keeps.push_back(std::make_shared<OwnedOutput>(std::move(below)));  // kept until it has been read
  return {};
}

Result<void> DeviceExecutor::run_staged(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                                        Interrupt& interrupt) {
  std::vector<PendingOp> twins(ops.size());
  std::vector<PendingOp*> pointers;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    twins[i].what = ops[i]->what;
    pointers.push_back(&twins[i]);
  }
  HVD_TRY(fetch_inputs(ops, twins, batch, interrupt));
  HVD_TRY(host_.executor.run(response, pointers, interrupt));
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (is_on_device(*ops[i])) {
      HVD_TRY(put_result(*ops[i], twins[i], batch));
    }
  }
  return {};
}

}  // namespace hvd
