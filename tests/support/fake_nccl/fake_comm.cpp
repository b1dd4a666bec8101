#include "tests/support/fake_nccl/fake_comm.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"
#include "tests/support/fake_nccl/fake_faults.h"

namespace hvd::fake {
namespace {

Dtype dtype_of(NcclType type) {
  switch (type) {
    case NcclType::kInt8:
      return Dtype::kInt8;
    case NcclType::kInt32:
      return Dtype::kInt32;
    case NcclType::kInt64:
      return Dtype::kInt64;
    case NcclType::kFloat16:
      return Dtype::kFloat16;
    case NcclType::kFloat32:
      return Dtype::kFloat32;
    case NcclType::kFloat64:
      return Dtype::kFloat64;
    case NcclType::kBfloat16:
      return Dtype::kBfloat16;
    default:
      HVD_CHECK(type == NcclType::kUint8);  // runtime/ uses no other
      return Dtype::kUint8;
  }
}

ReduceOp op_of(NcclOp op) {
  switch (op) {
    case NcclOp::kProduct:
      return ReduceOp::kProduct;
    case NcclOp::kMax:
      return ReduceOp::kMax;
    case NcclOp::kMin:
      return ReduceOp::kMin;
    default:
      return ReduceOp::kSum;
  }
}

void* writable(const void* data) {
  return const_cast<void*>(data);
}

}  // namespace

void die() {
  ::kill(::getpid(), SIGKILL);
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "ncclAllReduce";
    case Kind::kBroadcast:
      return "ncclBroadcast";
    case Kind::kReduce:
      return "ncclReduce";
    case Kind::kAllGather:
      return "ncclAllGather";
    case Kind::kReduceScatter:
      return "ncclReduceScatter";
    case Kind::kSend:
      return "ncclSend";
    case Kind::kRecv:
      return "ncclRecv";
  }
  return "?";
}

std::size_t size_of(NcclType type) {
  return hvd::size_of(dtype_of(type));
}

// What all have of `count` elements from `skip` on, reduced in the order of ranks, where this rank `keeps` it.
Links::End Work::reduce(const Call& call, std::size_t skip, std::size_t count, bool keeps, void (*half_sent)()) {
  const std::size_t element = size_of(call.type);
  const auto* own = static_cast<const std::uint8_t*>(call.input) + skip * element;
  std::vector<std::vector<std::uint8_t>> all;
  const Links::End end = links.gather(own, count * element, all, half_sent);
  if (end != Links::End::kDone || !keeps || count == 0) {
    return end;
  }
  for (std::size_t other = 1; other < all.size(); ++other) {
    reduce_into(all[0].data(), all[other].data(), count, dtype_of(call.type), op_of(call.op));
  }
  std::memcpy(call.out, all[0].data(), count * element);
  return end;
}

Links::End Work::run_call(const Call& call, void (*half_sent)()) {
  const std::size_t bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case Kind::kAllReduce:
      return reduce(call, 0, call.count, true, half_sent);
    case Kind::kReduce:
      return reduce(call, 0, call.count, call.peer == rank, half_sent);
    case Kind::kReduceScatter: {
      Links::End end = Links::End::kDone;
      for (int part = 0; part < size && end == Links::End::kDone; ++part) {
        end = reduce(call, static_cast<std::size_t>(part) * call.count, call.count, part == rank, half_sent);
      }
      return end;
    }
    case Kind::kAllGather: {
      std::vector<std::vector<std::uint8_t>> all;
      const Links::End end = links.gather(call.input, bytes, all, half_sent);
      for (std::size_t part = 0; end == Links::End::kDone && part < all.size() && bytes > 0; ++part) {
        std::memcpy(static_cast<std::uint8_t*>(call.out) + part * bytes, all[part].data(), bytes);
      }
      return end;
    }
    default: {  // broadcast
      std::vector<Part> sent;
      std::vector<Part> received;
      if (call.peer == rank) {
        for (int other = 0; other < size; ++other) {
          sent.push_back({other, writable(call.input), bytes});
        }
      }
      received.push_back({call.peer, call.out, bytes});
      return links.move(std::move(sent), std::move(received), half_sent);
    }
  }
}

void Work::run(const std::vector<Call>& group) {
  void (*half_sent)() = nullptr;
  for (const Call& call : group) {
    const char* name = name_of(call.kind);
    if (nccl::hangs_now(name, rank)) {
      links.wait_for_abort();
      return;
    }
    half_sent = nccl::is_killed_now(name, rank) ? &die : half_sent;
  }
  if (const int delay = nccl::delay_us(rank); delay > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(delay));  // sleeps: a slow rank is what was asked for
  }
  std::vector<Part> sent;
  std::vector<Part> received;
  Links::End end = Links::End::kDone;
  for (std::size_t i = 0; i < group.size() && end == Links::End::kDone && !is_aborted; ++i) {
    const Call& call = group[i];
    const std::size_t bytes = call.count * size_of(call.type);
    if (call.kind == Kind::kSend) {
      sent.push_back({call.peer, writable(call.input), bytes});
    } else if (call.kind == Kind::kRecv) {
      received.push_back({call.peer, call.out, bytes});
    } else {
      end = run_call(call, half_sent);
    }
  }
  if (end == Links::End::kDone && !is_aborted && (!sent.empty() || !received.empty())) {
    end = links.move(std::move(sent), std::move(received), half_sent);
  }
  if (end == Links::End::kDone || end == Links::End::kAborted) {
    return;
  }
  // As a kernel does whose peer is gone: it is told on the side, and the kernel waits.
  if (end == Links::End::kMismatch) {
    error = static_cast<int>(NcclCode::kInternalError);
  } else if (!nccl::is_silent()) {
    error = static_cast<int>(NcclCode::kRemoteError);
  }
  links.wait_for_abort();
}

}  // namespace hvd::fake

void ncclComm::join() {
  const std::lock_guard lock(mutex_);
  if (worker_.joinable()) {
    worker_.join();
  }
}

void ncclComm::start(std::function<int()> body) {
  join();
  state = static_cast<int>(hvd::NcclCode::kInProgress);
  const std::lock_guard lock(mutex_);
  worker_ = std::thread([this, body = std::move(body)] { state = body(); });
}
