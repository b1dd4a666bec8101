// PendingOps holds the operations that this rank has asked for and that are not finished, by name, and finds those that
// a response is about. A name is free for the program's next operation just before its Completion is finished.
// Thread: engine only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/controller/message.h"
#include "runtime/coordinate/set_table.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

class PendingOps {
 public:
  // Both must outlive it.
  PendingOps(SubmitQueue& queue, SetTable& sets, int rank) : queue_(queue), sets_(sets), rank_(rank) {}

  [[nodiscard]] bool empty() const { return ops_.empty(); }
  PendingOp* add(OpRef op);
  // Returns null for an operation that this rank has not asked for. A tensor of another rank may have the name of a
  // join.
  [[nodiscard]] PendingOp* find(const Response& response, const std::string& name) const;
  // Returns this rank's operations of this name, one or a group; none if it has not asked for them.
  [[nodiscard]] std::vector<PendingOp*> named(int process_set, const std::string& name) const;
  // The names that a response is about. An error names the first tensor of a group, and applies to the whole group as
  // this rank asked for it. The other ranks' group may differ, which may be the error.
  [[nodiscard]] std::vector<std::string> names_of(const Response& response) const;
  // Returns this rank's part in a response. After this rank has joined, and when others make a process set by
  // themselves, it uses stand-ins.
  Result<std::vector<PendingOp*>> parts_of(const Response& response, std::deque<PendingOp>& stand_ins) const;

  // Finishes the operations; stand-ins among them are not this rank's and are skipped.
  void finish(std::span<PendingOp* const> ops, const Result<void>& result);
  // Finishes all that is pending with the error that belongs to its name.
  void fail_all(const std::function<Error(const std::string& name)>& error_of);
  // Hands an operation over to the caller, which finishes it; its name stays in use.
  OpRef hand_over(const PendingOp& op);

 private:
  using Table =
      std::unordered_map<OpKey, OpRef, OpKeyHash, std::equal_to<>, BlockAllocator<std::pair<const OpKey, OpRef>>>;

  [[nodiscard]] bool has_joined() const;

  SubmitQueue& queue_;
  SetTable& sets_;
  const int rank_;
  Table ops_{Table::allocator_type(std::make_shared<BlockPool>())};
};

// What a response is about, for messages: "ALLREDUCE 'x' and 2 more". `ops` are this rank's operations of the response,
// as far as they are known.
std::string text_of(const Response& response, std::span<PendingOp* const> ops);

}  // namespace hvd
