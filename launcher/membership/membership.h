// Membership decides which processes of an elastic job train together: its generations. Pure: no I/O, no clock.
//
// A process has the number that it was started with ("rank" here), and in each generation a place. When a member is
// lost, the others form a new generation at once if they are enough; else they wait for processes that are being
// started. A process that comes later waits. The members are asked to leave when it suits them, so that nothing of
// theirs is lost; a generation with all of them is formed when the last member has left, and waits too. In the same way
// members are released whose host is to be given back, once the others are enough without them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "launcher/placement/placement.h"
#include "runtime/rendezvous/generation_place.h"

namespace hvd::launch {

// Generation is an ordered list of members: members[i] has rank i in it.
struct Generation {
  std::uint32_t number = 0;
  std::vector<int> members;
  std::vector<int> newcomers{};  // those that were no members before
  std::vector<int> released{};   // those that were, live, and are members no more
  bool is_repeated = false;      // the same processes as before meet again, which had not met
};

class Membership {
 public:
  // The first generation has all ranks of the placement. `least`: how many members a generation must have; `most`: how
  // many it may have where it takes newcomers in. For whom there is no room waits until others are released or lost.
  Membership(const Placement& placement, int least, int most);

  // So many ranks more are being started, numbered on from those that there are.
  void add(int count);
  // From now on these ranks, and no others, are to be released. Those that are no members are so at once. Who is
  // released is not taken in again.
  void set_leaving(const std::vector<int>& ranks);
  // A process is being started in place of the one that this rank had.
  void on_starting(int rank);
  // Its process has ended, or its node is lost.
  void on_lost(int rank);
  // It has ended in order. From now on nobody is taken in, since the job is ending, unless the rank was released.
  void on_done(int rank);
  // All members of the present generation have met.
  void on_met();
  // Its runtime waits to be taken in. `known`: the newest generation that its agent knew then; what is older says
  // nothing about the present one.
  void on_waiting(int rank, std::uint32_t known);

  // Forms the next generation if there is to be one now. Without `may_shrink` it has no fewer members than the present
  // one, unless the job is ending.
  std::optional<Generation> next(bool may_shrink = true);
  // True when the members are to be asked to leave, for newcomers; they are asked once. `is_late`: newcomers have
  // waited long enough for others that are being started.
  [[nodiscard]] bool must_ask(bool is_late);
  // Processes are being started, or wait, that the members will take in.
  [[nodiscard]] bool is_growing() const {
    return !is_ending_ && (any_starting() || (any_newcomer() && (room() > 0 || can_release())));
  }
  // Newcomers wait for others that are being started.
  [[nodiscard]] bool awaits_others() const;
  // A member of the present generation is lost, and no other generation is formed yet.
  [[nodiscard]] bool is_broken() const { return is_broken_; }
  // A member that could not connect to the others, and waits again before all have met; -1: there is none. The others
  // try for as long as they may, and in vain.
  [[nodiscard]] int unmet_rank() const;
  // The present generation is over, and its members are to meet again.
  void break_up() { is_broken_ = is_broken_up_ = true; }
  // The ranks of each host whose members have never met others, and one of which is such a rank.
  [[nodiscard]] std::vector<std::vector<int>> unmet_hosts() const;
  [[nodiscard]] const Generation& now() const { return now_; }

 private:
  enum class Process : std::uint8_t { kNone, kStarting, kWaiting, kIn };
  struct Rank {
    Process process = Process::kIn;
    bool is_member = true;
    bool is_leaving = false;
    bool is_released = false;
    bool has_met = true;  // this process was a member when all had met; who begins with the job counts so
  };

  [[nodiscard]] const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool is_newcomer(int rank) const {
    return at(rank).process == Process::kWaiting && !at(rank).is_member && !at(rank).is_released;
  }
  [[nodiscard]] bool is_candidate(int rank) const { return at(rank).is_member || is_newcomer(rank); }
  // The others are enough without the ranks that are to be released.
  [[nodiscard]] bool can_release() const;
  // So many newcomers can be taken in.
  [[nodiscard]] int room() const;
  [[nodiscard]] bool any_newcomer() const;
  [[nodiscard]] bool any_starting() const;
  // Survivors in their order, newcomers behind the survivors of their node, and nodes of newcomers alone at the end.
  [[nodiscard]] std::vector<int> in_order() const;

  const Placement& placement_;
  const int least_;
  const int most_;
  std::vector<Rank> ranks_;  // by the number that they were started with
  Generation now_;
  bool is_broken_ = false;
  bool is_broken_up_ = false;
  bool has_met_ = false;    // all members of the present generation
  bool is_asked_ = false;   // the members are to leave
  bool is_ending_ = false;  // a rank has ended in order
};

// Returns the place of each member. The ranks of a node must be consecutive.
std::map<int, GenerationPlace> places_of(const Placement& placement, const std::vector<int>& members);

}  // namespace hvd::launch
