// HostRounds lets the leaders of all nodes do a small operation together, without a coordinator: each posts its
// operation and its data in a round, and either all do it, or none does.
//
// Each node answers each round once: it posts, or it declines. A round is done if all nodes have posted in it, all for
// the same operation (the same head); otherwise it is declined, and whoever posted goes the ordinary way. The nodes
// exchange in pairs, by recursive doubling: in the exchange of distance d, nodes whose index differs in bit d send each
// other what they know. Nodes beyond the largest power of two first send to a partner, and get the outcome from it.
//
// Why no two nodes can disagree about a round. Call S(i, k) the conjunction of the answers of the 2^k nodes that node i
// has heard from, itself included, before its exchange k: all of them have posted, with one head. Node i sends its
// partner p a post with this head if S(i, k) holds, and a decline if it does not; p does the same. Both then compute
// S(., k+1) from the same two messages: both were posts, and their heads are equal. So by induction S(i, k) depends on
// the answers alone, and not on when they came; and after the last exchange it is about all nodes, on every node. The
// induction needs three things:
//  - A node sends each partner one message for each round, or a decline that covers the round. It goes through all
//    exchanges even if it knows the outcome early: then it sends all partners that wait for it the decline at once.
//  - An answer is final. A node that has posted never declines that round because it is tired of waiting, only because
//    a message told it that the round is declined. An absent rank's answer is given by its engine, see answer(), and
//    the lock decides which of the two was first.
//  - Messages are neither lost nor reordered. So a lost connection is an error, which ends the job on all ranks.
// A node beyond the largest power of two takes the outcome from its partner, which takes its answer into S(., 1).
//
// There is one exception. Once the job is over, or the process set is removed, a node gives up a round, and answers
// none any more. Then one node may have the result, and another none; but that one refuses its operation with the job's
// error, or since the set is removed. So no later operation can meet a wrong one.
//
// Why it ends. A post that is not answered within kPatience makes the node ask all others to answer (by the control
// links, RoundWaits::ask), again and again. A node that works on the round answers it as soon as its own ranks are
// there or missing, within milliseconds; for any other its engine declines. A decline for which a connection has no
// room is kept, and each further call sends more of it. So each node answers, and the exchanges end.
//
// An operation's number is the number of operations that were done before it, in the same set of ranks. It is the same
// on all nodes where each rank starts one operation after the other. Here it only tells whether an answer that an
// engine gave was about the operation that comes next; so a number that differs costs time, and nothing else.
//
// A decline covers all rounds up to its own that its sender has not posted in, so a node that was away for many rounds
// catches up in one. Thread: those who begin() and run() one at a time; answer() and retire(): any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/link/host_link.h"
#include "runtime/link/stream_io.h"

namespace hvd {

// RoundData is what one node brings to a round, and makes of what the others bring. It must not change the caller's
// memory before the last take().
class RoundData {
 public:
  virtual ~RoundData() = default;
  // The most bytes that a node sends.
  [[nodiscard]] virtual std::size_t size_bytes() const = 0;
  // Returns what this node knows, to be sent to a partner; it stays in place until the next take().
  [[nodiscard]] virtual Bytes own() const = 0;
  // Combines it with what a partner knows, whose nodes come before this node's, or after them. `is_last`: the result is
  // about all nodes, and the round is done. `theirs` stays in place until the next round. False: it makes no sense.
  virtual bool take(Bytes theirs, bool is_theirs_first, bool is_last) = 0;
  // Takes the result from the partner instead.
  virtual bool accept(Bytes result) = 0;

 protected:
  RoundData() = default;
  RoundData(const RoundData&) = default;
  RoundData& operator=(const RoundData&) = default;
};

// RoundWaits is what a wait for other nodes needs from the engine. Thread: any.
class RoundWaits {
 public:
  virtual ~RoundWaits() = default;
  // True once the job is over on this rank.
  [[nodiscard]] virtual bool is_over() const = 0;
  // Makes every node answer() this round.
  virtual void ask(std::uint64_t round) = 0;
  // See Interrupt.
  virtual void note_sleep() = 0;

 protected:
  RoundWaits() = default;
  RoundWaits(const RoundWaits&) = default;
  RoundWaits& operator=(const RoundWaits&) = default;
};

class HostRounds {
 public:
  // More nodes take the ordinary way: a rank that is late would hold up too many.
  static constexpr int kMostNodes = 16;
  // How long a post waits before it asks.
  static constexpr Duration kPatience = std::chrono::milliseconds(5);

  // The nodes with which this one exchanges; each pair of them has a connection.
  static std::vector<int> partners_of(int node, int nodes);

  // links[node] is the connection to that partner, and null for all other nodes.
  HostRounds(std::vector<std::unique_ptr<HostLink>> links, int node, Looks looks);
  HostRounds(const HostRounds&) = delete;
  HostRounds& operator=(const HostRounds&) = delete;

  // Begins to work on a round for the operation of this number. False: this node must not post now, since its engine
  // has declined for this operation already, or a partner has not taken what it was sent earlier.
  Result<bool> begin(std::uint64_t number);
  // Posts, after begin(), and returns whether the round is done. An error is that of a connection, or of what came by
  // it. False too if it gave up.
  Result<bool> run(Bytes head, RoundData& data, RoundWaits& waits);
  // Declines the next round, since the ranks of this node are not all there for the operation of this number. An error
  // is that of a connection.
  Result<void> decline(std::uint64_t number);

  // A partner waits for this node's answer of the round: declines, unless this node works on it, or has answered it.
  // `number` is that of the operation that comes next here.
  Result<void> answer(std::uint64_t round, std::uint64_t number);
  // Nothing may be begun any more, and a wait ends; all ranks call it at the same place of their order of operations.
  void retire();

 private:
  enum class Way : std::uint8_t { kSend, kReceive, kBoth };
  class Waiting;
  // Run is the round that is running.
  struct Run {
    std::uint64_t round;
    Bytes head;
    RoundData& data;
    Waiting& waiting;
  };
  // What a partner sent; nothing: the round is declined.
  using Heard = std::optional<Bytes>;

  [[nodiscard]] int count() const { return static_cast<int>(links_.size()); }
  [[nodiscard]] HostLink& link(int node) { return *links_[static_cast<std::size_t>(node)]; }
  Result<bool> run_exchanges(const Run& run);
  Result<bool> end_declined(const Run& run);
  Result<Heard> exchange(const Run& run, int node, Way way);
  Result<std::optional<Heard>> hear(const Run& run, int node);
  Result<void> hear_declines(int node);
  Result<void> decline_through(std::uint64_t round);
  Result<bool> flush_all();
  [[nodiscard]] bool is_retired();

  // constant after construction
  const std::vector<std::unique_ptr<HostLink>> links_;
  const int self_;
  // of the thread that runs a round, and guarded by mu_ while none is running, as the links are
  Looks looks_;
  std::vector<bool> has_posted_to_;  // by node, in the running round
  std::uint64_t through_ = 0;        // the running round is declined, and all others up to this one
  // guarded by mu_
  std::mutex mu_;
  std::uint64_t round_ = 0;             // the next one to answer
  std::optional<std::uint64_t> asked_;  // the last round that was asked for
  bool is_running_ = false;
  std::optional<std::uint64_t> declined_for_;  // the engine has declined for the operation of this number
  bool is_retired_ = false;
};

}  // namespace hvd
