#include "runtime/coordinate/pending_ops.h"

#include <algorithm>

#include "runtime/execute/stand_in.h"

namespace hvd {
namespace {

OpKey key_of(const PendingOp& op) {
  return {op.what.process_set, op.what.name};
}

}  // namespace

std::string text_of(const Response& response, std::span<PendingOp* const> ops) {
  const std::string& name = ops.empty() ? response.names.front() : ops.front()->what.name;
  const std::size_t tensors = std::max(response.names.size(), ops.size());
  std::string text = std::string(name_of(response.kind)) + " '" + name + "'";
  if (response.process_set != 0) {
    text += " of process set " + std::to_string(response.process_set);
  }
  if (tensors > 1) {
    text += " and " + std::to_string(tensors - 1) + " more";
  }
  return text;
}

PendingOp* PendingOps::add(OpRef op) {
  const OpKey key = key_of(*op);
  return ops_.emplace(key, std::move(op)).first->second.get();
}

PendingOp* PendingOps::find(const Response& response, const std::string& name) const {
  const auto found = ops_.find(OpKey{response.process_set, name});
  const auto is_join = [](OpKind kind) { return kind == OpKind::kJoin; };
  const bool is_here = found != ops_.end() && is_join(found->second->what.kind) == is_join(response.kind);
  return is_here ? found->second.get() : nullptr;
}

std::vector<PendingOp*> PendingOps::named(int process_set, const std::string& name) const {
  const auto found = ops_.find(OpKey{process_set, name});
  if (found == ops_.end()) {
    return {};
  }
  std::vector<PendingOp*> ops = {found->second.get()};
  ops.insert(ops.end(), ops.front()->group.begin(), ops.front()->group.end());
  return ops;
}

std::vector<std::string> PendingOps::names_of(const Response& response) const {
  std::vector<std::string> names = response.names;
  const auto found = response.is_error() ? ops_.find(OpKey{response.process_set, names.front()}) : ops_.end();
  if (found != ops_.end()) {
    for (const PendingOp* other : found->second->group) {
      names.push_back(other->what.name);
    }
  }
  return names;
}

bool PendingOps::has_joined() const {
  const auto found = ops_.find(OpKey{0, kJoinName});
  return found != ops_.end() && found->second->what.kind == OpKind::kJoin;
}

Result<std::vector<PendingOp*>> PendingOps::parts_of(const Response& response, std::deque<PendingOp>& stand_ins) const {
  std::vector<PendingOp*> ops;
  for (const std::string& name : names_of(response)) {
    PendingOp* op = find(response, name);
    const std::size_t index = ops.size();
    if (op == nullptr && has_joined()) {
      sets_.note_noname(response.process_set, response.kind, name);
    }
    // The kinds differ in a mismatch; otherwise all ranks asked for the same.
    if (op != nullptr && (response.is_error() || op->what.kind == response.kind)) {
      ops.push_back(op);
    } else if (op == nullptr && !response.numbers.empty()) {
      ops.push_back(&stand_ins.emplace_back(make_set_stand_in(response)));
    } else if (op == nullptr && response.kind == OpKind::kSetAdd && response.is_error()) {
      continue;  // only the set's members asked for it, and only they receive the error
    } else if (op == nullptr && has_joined() && index < response.counts.size()) {
      HVD_TRY_ASSIGN(stand_ins.emplace_back(), make_stand_in(response, index));
      ops.push_back(&stand_ins.back());
    } else if (op != nullptr || !has_joined() || !(response.is_error() || response.kind == OpKind::kBarrier)) {
      return Error(Code::kProtocol, "the coordinator ordered " + text_of(response, {}) + ", but rank " +
                                        std::to_string(rank_) + " has not asked for it");
    }
  }
  return ops;
}

void PendingOps::finish(std::span<PendingOp* const> ops, const Result<void>& result) {
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;
    }
    const auto node = ops_.extract(key_of(*op));
    if (result.ok() && op->what.kind == OpKind::kJoin) {
      sets_.restart_counts();
    }
    queue_.forget(node.key());
    if (!result.ok() && op->what.kind == OpKind::kSetRemove) {
      queue_.reopen_set(op->what.numbers.front());
    }
    node.mapped()->finish(result);
  }
}

void PendingOps::fail_all(const std::function<Error(const std::string& name)>& error_of) {
  while (!ops_.empty()) {
    const auto node = ops_.extract(ops_.begin());
    queue_.forget(node.key());
    node.mapped()->finish(error_of(node.mapped()->what.name));
  }
}

OpRef PendingOps::hand_over(const PendingOp& op) {
  return std::move(ops_.extract(key_of(op)).mapped());
}

}  // namespace hvd
