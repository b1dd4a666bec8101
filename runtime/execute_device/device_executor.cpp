#include "runtime/execute_device/device_executor.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "runtime/execute/row_plan.h"

namespace hvd {
namespace {

// The driver maps NCCL's memory in pages of this size.
constexpr std::size_t kRegisteredBytes = 2U << 20U;

std::vector<DevicePiece> pieces_of(std::span<PendingOp* const> ops) {
  std::vector<DevicePiece> pieces;
  for (const PendingOp* op : ops) {
    const std::size_t count = input_bytes(op->what) / size_of(op->what.dtype);
    if (count != 0) {
      pieces.push_back({op->what.input, op->what.output, count});
    }
  }
  return pieces;
}

constexpr std::size_t kAlignment = 64;  // alignment of each tensor in pinned memory
constexpr int kYields = 1000;
constexpr Duration kPollNap = std::chrono::microseconds(50);

std::size_t padded(std::size_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_on_device(const PendingOp& op) {
  return op.what.device >= 0;
}

// The kernels scale in float64, while the host scales and averages int64 exactly.
bool is_exact_on_host(const Submission& like) {
  return like.dtype == Dtype::kInt64 &&
         (like.op == ReduceOp::kAverage || like.prescale != 1.0 || like.postscale != 1.0);
}

bool reads_input(const PendingOp& op, int own_rank) {
  return op.what.kind != OpKind::kBroadcast || op.what.root_rank == own_rank;
}

}  // namespace

Result<std::unique_ptr<DeviceExecutor>> DeviceExecutor::make(Host host, std::shared_ptr<DevicePool> pool,
                                                             DevicePlan plan, std::shared_ptr<NcclComm> comm) {
  std::unique_ptr<DeviceExecutor> made(
      new DeviceExecutor(std::move(host), std::move(pool), std::move(plan), std::move(comm)));
  if (made->pool_ != nullptr) {
    HVD_TRY_ASSIGN(made->stream_, DeviceStream::make(made->pool_->device()));
    made->kernels_.emplace(made->pool_->device());
  }
  if (made->comm_ != nullptr) {
    made->can_register_ = made->comm_->library().has_memory();
    made->nccl_.emplace(made->comm_, made->stream_.handle());
  }
  return made;
}

Result<void> DeviceExecutor::run(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                                 Interrupt& interrupt) {
  const Result<void> launched = launch(response, ops, batch, interrupt);
  batch.stream = stream_.handle();
  if (pool_ != nullptr) {
    // Mark the end even if not all of it could be launched: the launched part works on the callers' memory.
    auto done = pool_->event_on(stream_.handle());
    batch.done = done.ok() ? done.value() : nullptr;
    HVD_TRY(launched);
    HVD_TRY(done);
  }
  return launched;
}

Result<void> DeviceExecutor::launch(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                                    Interrupt& interrupt) {
  HVD_TRY(wait_for_callers(ops));
  if (!goes_by_nccl(response, ops.front()->what)) {
    return run_staged(response, ops, batch, interrupt);
  }
  batch.comm = comm_;
  HVD_TRY(place_stand_ins(ops, batch));
  return run_nccl(response, ops, batch, interrupt);
}

// The answer depends only on what all ranks agree about, so all take the same way.
bool DeviceExecutor::goes_by_nccl(const Response& response, const Submission& like) const {
  return nccl_.has_value() && plan_.uses(response.kind) &&
         (!is_reduction(response.kind) || (NcclBackend::reduces(like.dtype) && !is_exact_on_host(like)));
}

// For each of the callers' streams, waiting for the last mark is enough.
Result<void> DeviceExecutor::wait_for_callers(std::span<PendingOp* const> ops) {
  std::map<void*, const ReadyMark*> last;
  for (const PendingOp* op : ops) {
    if (op->ready) {
      const ReadyMark*& mark = last[op->ready->stream];
      mark = mark == nullptr || mark->serial < op->ready->serial ? &*op->ready : mark;
    }
  }
  for (const auto& [stream, mark] : last) {
    HVD_TRY(pool_->device()->wait_for(stream_.handle(), mark->event->handle()));
  }
  return {};
}

Result<void> DeviceExecutor::place_stand_ins(std::span<PendingOp* const> ops, DeviceBatch& batch) {
  std::vector<PendingOp*> absent;
  std::size_t total = 0;
  for (PendingOp* op : ops) {
    if (op->what.device < 0) {
      absent.push_back(op);
      total += padded(input_bytes(op->what));
    }
  }
  if (absent.empty()) {
    return {};
  }
  // One fill serves all: a stream has room for about a thousand (DevicePlane::run).
  HVD_TRY_ASSIGN(auto block, pool_->block(total, stream_.handle()));
  if (total != 0) {
    HVD_TRY(pool_->device()->fill(block->data(), 0, total, stream_.handle()));
  }
  auto* at = static_cast<std::uint8_t*>(block->data());
  for (PendingOp* op : absent) {
    op->what.input = at;
    op->what.output = at;
    at += padded(input_bytes(op->what));
  }
  batch.keeps.push_back(std::move(block));
  return {};
}

// All ranks get registered memory, or none: NCCL allows no call in which only some ranks pass registered memory. So
// they ask for it at the same call, with the same size, and agree. That costs a message for each doubling.
Result<void> DeviceExecutor::grow_registered(std::size_t size_bytes, Interrupt& interrupt) {
  auto made = NcclBuffer::make(comm_, std::bit_ceil(std::max(size_bytes, kRegisteredBytes)));
  Result<void> own = made.ok() ? Result<void>() : Result<void>(made.error());
  if (made.ok()) {
    registered_.push_back(std::move(made).value());  // also if it stays unused
    own = registered_.back().enroll();
  }
  const DeviceParty party{host_.ranks, host_.map.rank, host_.backend};
  HVD_TRY_ASSIGN(const std::string why, agree(party, own, interrupt));
  can_register_ = why.empty();
  if (!can_register_ && host_.map.rank == 0) {
    notice_ = why;
  }
  return {};
}

// Returns memory for packing before a reduction, of the same size on all ranks; valid as reserve()'s.
Result<std::uint8_t*> DeviceExecutor::reserve_registered(std::size_t size_bytes, DeviceBatch& batch,
                                                         Interrupt& interrupt) {
  if (can_register_ && (registered_.empty() || registered_.back().size_bytes() < size_bytes)) {
    HVD_TRY(grow_registered(size_bytes, interrupt));
  }
  return can_register_ ? registered_.back().data() : reserve(size_bytes, batch);
}

// Returns memory for packing; valid until the next call, and used in the order of the stream.
Result<std::uint8_t*> DeviceExecutor::reserve(std::size_t size_bytes, DeviceBatch& batch) {
  if (buffer_ == nullptr || buffer_->size_bytes() < size_bytes) {
    HVD_TRY_ASSIGN(buffer_, pool_->block(size_bytes, stream_.handle()));
  }
  batch.keeps.push_back(buffer_);
  return static_cast<std::uint8_t*>(buffer_->data());
}

Result<OwnedOutput> DeviceExecutor::allocate(const Submission& what, std::int64_t rows, DeviceBatch& batch) {
  HVD_TRY_ASSIGN(RowShare share, share_of(what, rows));
  HVD_TRY_ASSIGN(auto block, pool_->block(share.size_bytes, stream_.handle()));
  batch.keeps.push_back(block);
  OwnedOutput output;
  output.size_bytes = share.size_bytes;
  output.shape = std::move(share.shape);
  output.device = std::move(block);
  return output;
}

Result<void> DeviceExecutor::run_nccl(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                                      Interrupt& interrupt) {
  switch (response.kind) {
    case OpKind::kAllreduce:
      if (ops.front()->what.op != ReduceOp::kAdasum) {
        return allreduce(ops, batch, interrupt);
      }
      for (PendingOp* op : ops) {
        HVD_TRY(adasum(*op, batch, interrupt));
      }
      return {};
    case OpKind::kAllgather:
      return allgather(response, ops, batch, interrupt);
    case OpKind::kReducescatter:
      return reducescatter(ops, batch, interrupt);
    case OpKind::kAlltoall:
      return alltoall(*ops.front(), batch, interrupt);
    case OpKind::kBroadcast:
      return broadcast(*ops.front(), interrupt);
    default:
      return Error(Code::kProtocol, "the coordinator ordered an operation on devices that has no tensor");
  }
}

// A single tensor without a prescale is reduced directly; others share one buffer, packed and unpacked by one launch
// each.
Result<void> DeviceExecutor::allreduce(std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt) {
  const std::vector<DevicePiece> pieces = pieces_of(ops);
  if (pieces.empty()) {
    return {};  // true on every rank, since all agreed on the shapes
  }
  const Submission& like = ops.front()->what;
  const ReduceOp op = combining_op(like.op);
  const Scale after = result_scale(like.op, like.postscale, host_.map.size);
  if (pieces.size() == 1 && like.prescale == 1.0) {
    const DevicePiece& piece = pieces.front();
    HVD_TRY(nccl_->allreduce(piece.input, piece.output, piece.count, like.dtype, op, interrupt));
    return after.is_one() ? Result<void>()
                          : kernels_->unpack(stream_.handle(), pieces, piece.output, like.dtype, like.dtype, after);
  }
  const std::size_t bytes = packed_bytes(pieces, like.dtype);
  HVD_TRY_ASSIGN(std::uint8_t* const buffer, reserve_registered(bytes, batch, interrupt));
  HVD_TRY(kernels_->pack(stream_.handle(), pieces, buffer, like.dtype, like.dtype, like.prescale));
  HVD_TRY(nccl_->allreduce(buffer, buffer, bytes / size_of(like.dtype), like.dtype, op, interrupt));
  return kernels_->unpack(stream_.handle(), pieces, buffer, like.dtype, like.dtype, after);
}

// Each rank receives the vectors of all, and computes the same result. Those of a node, whose ranks are consecutive,
// are averaged first, as in Horovod: its scripts multiply the learning rate by hvd.local_size() for that.
Result<void> DeviceExecutor::adasum(PendingOp& op, DeviceBatch& batch, Interrupt& interrupt) {
  const std::vector<DevicePiece> pieces = pieces_of(std::array{&op});
  if (pieces.empty()) {
    return {};
  }
  const Submission& like = op.what;
  const auto size = static_cast<std::size_t>(host_.map.size);
  const std::size_t bytes = packed_bytes(pieces, like.dtype);
  HVD_TRY_ASSIGN(std::uint8_t* const buffer, reserve((size + 1) * bytes, batch));
  std::uint8_t* const own = buffer + size * bytes;
  HVD_TRY(kernels_->pack(stream_.handle(), pieces, own, like.dtype, like.dtype, like.prescale));
  const NcclBackend::Gather gather{own, std::vector<std::size_t>(size, bytes), buffer};
  HVD_TRY(nccl_->allgather(std::span(&gather, 1), interrupt));
  std::vector<void*> of_nodes;
  for (std::size_t first = 0; first < size;) {
    std::vector<void*> vectors;
    const int node = host_.map.node_of_rank[first];
    for (; first < size && host_.map.node_of_rank[first] == node; ++first) {
      vectors.push_back(buffer + first * bytes);
    }
    HVD_TRY(kernels_->average(stream_.handle(), vectors, pieces.front().count, like.dtype));
    of_nodes.push_back(vectors.front());
  }
  HVD_TRY(kernels_->adasum(stream_.handle(), of_nodes, pieces.front().count, like.dtype));
  return kernels_->unpack(stream_.handle(), pieces, buffer, like.dtype, like.dtype, like.postscale);
}

Result<void> DeviceExecutor::broadcast(PendingOp& op, Interrupt& interrupt) {
  const std::size_t bytes = input_bytes(op.what);
  if (bytes == 0) {
    return {};
  }
  HVD_TRY_ASSIGN(const int root, root_index(host_.ranks, op.what.root_rank));
  const void* input = root == host_.map.rank ? op.what.input : op.what.output;
  return nccl_->broadcast(input, op.what.output, bytes, root, interrupt);
}

Result<void> DeviceExecutor::allgather(const Response& response, std::span<PendingOp* const> ops, DeviceBatch& batch,
                                       Interrupt& interrupt) {
  HVD_TRY_ASSIGN(const RowLayout all, gathered_layout(response, ops, host_.map));
  const auto size = static_cast<std::size_t>(host_.map.size);
  std::vector<NcclBackend::Gather> gathers;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    HVD_TRY_ASSIGN(const std::int64_t rows, gathered_rows(response, i, host_.map));
    HVD_TRY_ASSIGN(ops[i]->output, allocate(ops[i]->what, rows, batch));
    if (ops[i]->output->size_bytes == 0) {
      continue;
    }
    NcclBackend::Gather gather{ops[i]->what.input, {}, ops[i]->output->device->data()};
    const std::size_t row_bytes = ops[i]->output->size_bytes / static_cast<std::size_t>(rows);
    for (std::size_t rank = 0; rank < size; ++rank) {
      gather.sizes.push_back(static_cast<std::size_t>(response.first_dims[i * size + rank]) * row_bytes);
    }
    gathers.push_back(std::move(gather));
  }
  return gathers.empty() ? Result<void>() : nccl_->allgather(gathers, interrupt);
}

// With a scale, inputs or results go through a buffer, as for an allreduce.
Result<void> DeviceExecutor::reducescatter(std::span<PendingOp* const> ops, DeviceBatch& batch, Interrupt& interrupt) {
  const Submission& like = ops.front()->what;
  const std::size_t element = size_of(like.dtype);
  const Scale after = result_scale(like.op, like.postscale, host_.map.size);
  const auto own = static_cast<std::size_t>(host_.map.rank);
  std::vector<NcclBackend::Scatter> scatters;
  std::vector<DevicePiece> results;
  for (PendingOp* op : ops) {
    HVD_TRY_ASSIGN(const RowLayout layout, scattered_layout(std::array{op}, host_.map.size));
    const auto rows = even_rows(op->what.shape.front(), host_.map.size);
    HVD_TRY_ASSIGN(op->output, allocate(op->what, rows[own], batch));
    void* const out = op->output->device->data();
    if (layout.total_bytes() != 0) {
      const auto sizes = layout.rank_bytes();
      scatters.push_back({op->what.input, {sizes.begin(), sizes.end()}, out});
    }
    if (op->output->size_bytes != 0) {
      results.push_back({out, out, op->output->size_bytes / element});
    }
  }
  if (scatters.empty()) {
    return {};
  }
  const std::vector<DevicePiece> inputs = pieces_of(ops);
  const bool scales_before = like.prescale != 1.0;
  const bool scales_after = !after.is_one() && !results.empty();
  const std::size_t input_room = scales_before ? packed_bytes(inputs, like.dtype) : 0;
  const std::size_t result_room = scales_after ? packed_bytes(results, like.dtype) : 0;
  HVD_TRY_ASSIGN(std::uint8_t* at, reserve(input_room + result_room, batch));
  std::uint8_t* const packed_results = at + input_room;
  if (scales_before) {
    HVD_TRY(kernels_->pack(stream_.handle(), inputs, at, like.dtype, like.dtype, like.prescale));
    for (std::size_t i = 0; i < scatters.size(); ++i) {
      scatters[i].input = at;
      at += packed_bytes(inputs[i].count, like.dtype);
    }
  }
  if (scales_after) {
    at = packed_results;
    for (NcclBackend::Scatter& scatter : scatters) {
      scatter.out = at;
      at += packed_bytes(scatter.sizes[own] / element, like.dtype);
    }
  }
  HVD_TRY(nccl_->reducescatter(scatters, like.dtype, combining_op(like.op), interrupt));
  return scales_after ? kernels_->unpack(stream_.handle(), results, packed_results, like.dtype, like.dtype, after)
                      : Result<void>();
}

Result<void> DeviceExecutor::alltoall(PendingOp& op, DeviceBatch& batch, Interrupt& interrupt) {
  HVD_TRY_ASSIGN(AlltoallPlan plan, plan_alltoall(op.what, host_.map, host_.backend, interrupt));
  HVD_TRY_ASSIGN(op.output, allocate(op.what, plan.rows, batch));
  op.output->received_splits = std::move(plan.received);
  return nccl_->alltoall(op.what.input, plan.sizes, op.output->device->data(), interrupt);
}

// Operations on devices through the host's memory: inputs are copied to pinned memory, the CPU's Executor works on
// copies of the operations there, and results are copied back.

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
      std::this_thread::sleep_for(kPollNap);
    }
  }
}

Result<std::uint8_t*> DeviceExecutor::reserve_pinned(std::size_t size_bytes) {
  const std::size_t there = pinned_.empty() ? 0 : pinned_.back().size_bytes();
  if (pinned_.empty() || there < size_bytes) {
    auto made = PinnedMemory::make(pool_->device(), std::max({size_bytes, 2 * there, kAlignment}));
    if (!made.ok() && 2 * there > size_bytes) {
      made = PinnedMemory::make(pool_->device(), size_bytes);
    }
    HVD_TRY_ASSIGN(PinnedMemory memory, std::move(made));
    pinned_.push_back(std::move(memory));
  }
  return pinned_.back().data();
}

// The copy runs after the previous operation's copy back from the same memory, since one stream does both. So once this
// copy has arrived, the host may write to that memory.
Result<void> DeviceExecutor::fetch_inputs(std::span<PendingOp* const> ops, std::span<PendingOp> twins,
                                          Interrupt& interrupt) {
  std::size_t total = 0;
  for (const PendingOp* op : ops) {
    total += is_on_device(*op) ? padded(input_bytes(op->what)) : 0;
  }
  if (pool_ == nullptr) {
    return {};  // this rank only takes part with stand-ins
  }
  HVD_TRY_ASSIGN(std::uint8_t* at, reserve_pinned(total));
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
  HVD_TRY(fetch_inputs(ops, twins, interrupt));
  // Scripts scale the learning rate by what hvd.nccl_built() says, and not by which way their gradients take.
  const auto of_node = plan_.has_nccl ? Executor::OfNode::kAveraged : Executor::OfNode::kCombined;
  HVD_TRY(host_.executor.run(response, pointers, interrupt, of_node));
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (is_on_device(*ops[i])) {
      HVD_TRY(put_result(*ops[i], twins[i], batch));
    }
  }
  return {};
}

}  // namespace hvd
