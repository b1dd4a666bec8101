#include "runtime/coordinate/submission_request.h"

#include <bit>

namespace hvd {
namespace {

bool is_same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

Request request_of(const Submission& what) {
  Request request;
  request.kind = what.kind;
  request.process_set = what.process_set;
  request.name = what.name;
  request.numbers = what.numbers;
  request.by_members = what.by_members;
  request.priority = what.priority;
  if (has_no_tensor(what.kind)) {
    return request;
  }
  request.dtype = what.dtype;
  request.shape = what.shape;
  request.shared_at = what.shared_at;
  request.is_device = what.device >= 0;
  if (is_reduction(what.kind)) {
    request.op = what.op;
    request.prescale = what.prescale;
    request.postscale = what.postscale;
  } else if (what.kind == OpKind::kBroadcast) {
    request.root_rank = what.root_rank;
  }
  return request;
}

// Compares with what request_of() would make.
bool is_request_of(const Request& request, const Submission& what) {
  if (request.kind != what.kind || request.process_set != what.process_set || request.name != what.name ||
      request.numbers != what.numbers || request.by_members != what.by_members || request.priority != what.priority) {
    return false;
  }
  if (has_no_tensor(what.kind)) {
    return true;
  }
  const bool is_as_large = request.dtype == what.dtype && request.shape == what.shape &&
                           request.shared_at == what.shared_at && request.is_device == (what.device >= 0);
  const bool does_the_same = is_reduction(what.kind)
                                 ? request.op == what.op && is_same(request.prescale, what.prescale) &&
                                       is_same(request.postscale, what.postscale)
                                 : what.kind != OpKind::kBroadcast || request.root_rank == what.root_rank;
  return is_as_large && does_the_same;
}

}  // namespace

Request request_of(std::span<PendingOp* const> ops) {
  Request request = request_of(ops.front()->what);
  for (const PendingOp* op : ops.subspan(1)) {
    request.group.push_back({op->what.name, op->what.dtype, op->what.shape, op->what.shared_at, op->what.device >= 0});
  }
  return request;
}

bool is_request_of(const Request& request, std::span<PendingOp* const> ops) {
  if (request.group.size() + 1 != ops.size() || !is_request_of(request, ops.front()->what)) {
    return false;
  }
  for (std::size_t i = 1; i < ops.size(); ++i) {
    const GroupTensor& tensor = request.group[i - 1];
    const Submission& what = ops[i]->what;
    if (tensor.name != what.name || tensor.dtype != what.dtype || tensor.shape != what.shape ||
        tensor.shared_at != what.shared_at || tensor.is_device != (what.device >= 0)) {
      return false;
    }
  }
  return true;
}

}  // namespace hvd
