// Negotiator: the coordinator's book of who asked for what in one process set. Requests in, what is ready (or in
// disagreement) out.
//
// Ranks are those of the job throughout; only `first_dims` is in the order of the set.
// Pure: no I/O, no clock, no environment. The answer depends on the requests and on the order in which tensors become
// complete, which is the coordinator's to decide; errors name ranks in rank order whatever the order of arrival.
// Thread: engine only, on the coordinator.
//
// KnownTensors stands in front of add(): where some ranks send a known tensor's bit and others a message, what was
// remembered of the tensor is added for the former.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/controller/message.h"

namespace hvd {

// A tensor (or a group by its first) for which some ranks have asked and others not.
struct Unfinished {
  std::uint64_t serial = 0;  // by the order in which they were first asked for
  OpKind kind = OpKind::kBarrier;
  std::string name;
  std::vector<int> missing;  // ranks, ascending
};

// A tensor, or a group of them, for which all ranks have asked that have not joined; or a join, when all have.
struct Ready {
  Request request;                       // what all agreed on; dimension 0 of an allgather is rank 0's
  std::vector<std::int64_t> first_dims;  // allgather: of each rank of the set, of each tensor of the group in turn
  bool is_missed = false;                // some ranks have not asked, because they have joined
  bool is_shared = false;                // an allreduce for which all ranks named the same places in shared memory
  std::int32_t answer = -1;              // join: the rank that joined last
  std::int32_t error_code = 0;           // a hvd::Code when they did not agree; of the whole group
  std::string error;
};

class Negotiator {
 public:
  // The set of the ranks 0 ... size-1.
  explicit Negotiator(int size);
  // The set of these ranks, ascending.
  explicit Negotiator(std::vector<int> ranks);

  // kProtocol when the rank asks for a name that it is waiting for already, or for anything after it has joined, or is
  // not of this set, or not of those who ask for it.
  // `askers`: the ranks that ask for this name, ascending, where it is not all of the set; the same at each call. The
  // others have nothing to say of it, and are told.
  Result<void> add(int rank, Request request, const std::vector<int>* askers = nullptr);

  // For a set beside that of all ranks, in which the joins are asked for: this rank has joined, or all have.
  void note_join(int rank);
  void forget_joins();
  // False again once all have joined.
  [[nodiscard]] bool has_joined(int rank) const;
  [[nodiscard]] bool has_any_joined() const { return joined_count_ > 0; }

  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  // Its place in the set, -1 for others.
  [[nodiscard]] int index_of(int rank) const;
  // For what is asked for beside it: no two tensors of a set have the same serial.
  std::uint64_t next_serial() { return ++last_serial_; }
  // Something was asked for and is not taken yet.
  [[nodiscard]] bool is_busy() const { return !entries_.empty() || !ready_.empty(); }

  [[nodiscard]] bool has_unfinished() const { return !entries_.empty(); }
  // In the order of their serials.
  [[nodiscard]] std::vector<Unfinished> unfinished() const;

  [[nodiscard]] bool has_ready() const { return !ready_.empty(); }
  // Tensors first asked for since the last take() of which some ranks have not been heard yet: the reason to wait a
  // moment for more. One that has outlasted a take() no longer counts, so a late rank delays nobody's other tensors.
  [[nodiscard]] bool has_fresh_incomplete() const { return fresh_incomplete_ > 0; }

  // What has become ready, in the order in which it did.
  std::vector<Ready> take();

 private:
  // What one name's ranks have asked for (a group goes by its first name). Ranks nearly always agree, so one Request is
  // kept and only others beside it.
  struct Entry {
    Request first;
    std::vector<std::pair<int, Request>> different;
    std::vector<bool> has_asked;           // or need not; [size of the set], as are all that follow
    std::vector<std::int64_t> first_dims;  // allgather: [tensors of the group * size]
    bool is_shared = false;
    int missing = 0;
    std::uint64_t generation = 0;  // how many take() had been when it was first asked for
    std::uint64_t serial = 0;
  };

  void wait_for(Entry& entry, const std::vector<int>* askers) const;
  void join(std::size_t index);
  void complete(const std::string& name);
  void note_first_dims(Entry& entry, std::size_t index, const Request& request) const;
  [[nodiscard]] Ready settle(Entry entry) const;

  const std::vector<int> ranks_;
  const int size_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<Ready> ready_;
  std::vector<bool> has_joined_;  // [size]; all false again when all have
  int joined_count_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t last_serial_ = 0;
  std::size_t fresh_incomplete_ = 0;
};

// The text for two ranks that disagree, empty when they do not. Exposed for its table of tests.
std::string disagreement(int rank_a, const Request& a, int rank_b, const Request& b);

}  // namespace hvd
