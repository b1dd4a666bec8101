// Negotiator records which ranks have asked for what in one process set. It takes requests in, and gives out what is
// ready, or what the ranks disagree about.
//
// Ranks are those of the job throughout; only `first_dims` is in the order of the set.
// Pure: no I/O, no clock, no environment. The answer depends on the requests and on the order in which tensors become
// complete, which the coordinator decides. Errors name ranks in rank order, whatever the order of arrival.
// Thread: engine only, on the coordinator.
//
// KnownTensors is consulted before add(). If some ranks send a known tensor's bit and others a message, the coordinator
// calls add() with the remembered request for those that sent the bit.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/controller/message.h"

namespace hvd {

// Unfinished is a tensor (or a group, by its first) for which some ranks have asked and others have not.
struct Unfinished {
  std::uint64_t serial = 0;  // the order in which they were first asked for
  OpKind kind = OpKind::kBarrier;
  std::string name;
  std::vector<int> missing;  // ranks, ascending
};

// Ready is a tensor, or a group, for which all ranks have asked that have not joined; or a join, when all have joined.
struct Ready {
  Request request;                       // the request that all agreed on; dimension 0 of an allgather is rank 0's
  std::vector<std::int64_t> first_dims;  // allgather: of each rank of the set, of each tensor of the group in turn
  bool is_missed = false;                // some ranks have not asked, because they have joined
  bool is_shared = false;                // an allreduce for which all ranks gave the same offsets in shared memory
  std::int32_t answer = -1;              // join: the rank that joined last
  std::int32_t error_code = 0;           // a hvd::Code if they did not agree; it applies to the whole group
  std::string error;
};

class Negotiator {
 public:
  // Makes the negotiator of the ranks 0 ... size-1.
  explicit Negotiator(int size);
  // For the set of these ranks, ascending.
  explicit Negotiator(std::vector<int> ranks);

  // Adds a rank's request. kProtocol: the rank asks for a name that it is waiting for already, asks for anything after
  // it has joined, or is not one of the set or of `askers`.
  // `askers`: the ranks that ask for this name, ascending, if they are not all of the set; it is the same at each call.
  // The other ranks do not ask, and receive the response all the same.
  // `serial`: of next_serial(), if the tensor has one already; 0: none.
  Result<void> add(int rank, Request request, const std::vector<int>* askers = nullptr, std::uint64_t serial = 0);

  // For a set other than that of all ranks, where joins are asked for: records that this rank has joined, or that all
  // have.
  void note_join(int rank);
  void forget_joins();
  // False again once all have joined.
  [[nodiscard]] bool has_joined(int rank) const;
  [[nodiscard]] bool has_any_joined() const { return joined_count_ > 0; }

  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  // Returns the rank's place in the set, -1 for others.
  [[nodiscard]] int index_of(int rank) const;
  // Returns a serial for a request that KnownTensors keeps, since no two tensors of a set have the same serial.
  std::uint64_t next_serial() { return ++last_serial_; }
  // True if something was asked for and is not taken yet.
  [[nodiscard]] bool is_busy() const { return !entries_.empty() || !ready_.empty(); }

  [[nodiscard]] bool has_unfinished() const { return !entries_.empty(); }
  // Returns them in the order of their serials.
  [[nodiscard]] std::vector<Unfinished> unfinished() const;

  [[nodiscard]] bool has_ready() const { return !ready_.empty(); }
  // True if there are tensors, first asked for since the last take(), for which some ranks have not asked yet. They are
  // the reason to wait a moment for more. A tensor that was already there at a take() no longer counts, so that a late
  // rank does not delay other tensors.
  [[nodiscard]] bool has_fresh_incomplete() const { return fresh_incomplete_ > 0; }

  // Returns what has become ready, in the order in which it did.
  std::vector<Ready> take();

 private:
  // Entry is what the ranks have asked for under one name (for a group, its first name). Ranks nearly always agree, so
  // it keeps one Request, and others only if they differ.
  struct Entry {
    Request first;
    std::vector<std::pair<int, Request>> different;
    std::vector<bool> has_asked;           // or need not ask; [size of the set], as are all that follow
    std::vector<std::int64_t> first_dims;  // allgather: [tensors of the group * size]
    bool is_shared = false;
    int missing = 0;
    int priority = 0;               // of the lowest rank that has asked
    std::size_t priority_from = 0;  // that rank's index
    std::uint64_t generation = 0;   // the number of take() calls when it was first asked for
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
  std::vector<bool> has_joined_;  // [size]; all false again when all have joined
  int joined_count_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t last_serial_ = 0;
  std::size_t fresh_incomplete_ = 0;
};

// Returns the error text for two ranks that disagree; empty if they agree. It is public for its table of tests.
std::string disagreement(int rank_a, const Request& a, int rank_b, const Request& b);

}  // namespace hvd
