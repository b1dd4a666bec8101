// Generations tells the agents which processes of a job train together, and serves their exchanges. A job that is not
// elastic has one generation, which is never over.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "launcher/membership/membership.h"
#include "launcher/wire/messages.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/exchange_board.h"

namespace hvd::launch {

class Generations {
 public:
  struct Sink {
    std::function<void(int node, AgentMessage type, const std::string& body)> send;
    std::function<void(AgentMessage type, const std::string& body)> broadcast;
    // A generation is formed. `pause`: since a member was lost, or since the first has left for it; zero where nobody
    // had to wait.
    std::function<void(const Generation& generation, Duration pause)> on_formed;
    // These ranks of one host, which had come, cannot meet the others.
    std::function<void(const std::vector<int>& ranks)> on_unmet;
    // All members are about to meet again, for this cause.
    std::function<void(const std::string& cause)> on_meeting_again;
    // Whether the process of this rank, as it was started, has ended in order.
    std::function<bool(int rank)> has_ended;
  };

  struct Limits {
    int least = 0;  // members that a generation must have
    int most = 0;   // that it may have
    Duration
        wait{};  // how long the others wait for new members in place of those that were lost, before they do without
    Duration meet{};  // how long they try to meet on, once one of them could not
  };

  // `placement`: where the ranks are; `agents`: the node of each session. Both must outlive this.
  Generations(EventLoop& loop, const Placement& placement, const Placement& agents, const Limits& limits, Sink sink);
  ~Generations();
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  // So many ranks more are being started on nodes that were added to the placement, and have sessions.
  void add(int count);
  // From now on these ranks, and no others, are to be released (membership.h).
  void set_leaving(const std::vector<int>& ranks);
  [[nodiscard]] std::uint32_t number() const { return membership_.now().number; }
  [[nodiscard]] int members() const { return static_cast<int>(membership_.now().members.size()); }
  // These ranks are lost, for this cause. `start`: one of them is started again.
  void lose(const std::vector<int>& ranks, const std::string& cause, std::optional<StartMessage> start);
  void on_joined(const JoinedMessage& joined);
  // The rank has ended in order.
  void on_done(int rank);
  // Returns what is wrong with it; whoever posts for a generation that is over gets no answer. A question who is
  // missing (store_wire.h) is answered.
  Result<void> post(const ExchangeMessage& exchange);
  // Returns the number that this rank of the generation was started with; -1: there is none.
  [[nodiscard]] int started_as(std::uint32_t generation, int rank) const;
  // Nothing more is formed: the job ends.
  void stop();

 private:
  // Forms a generation, asks the members to leave for one, or waits. `cause`: why the present one is over; empty: it is
  // not. `start`: one of its ranks is started again.
  void advance(bool is_late, const std::string& cause = {}, const std::optional<StartMessage>& start = std::nullopt);
  void begin(const Generation& formed, const std::string& cause, const std::optional<StartMessage>& start);
  // Sends each agent the members of its node, and `start` to the one of that rank.
  void tell(const GenerationMessage& common, const std::optional<StartMessage>& start = std::nullopt,
            const Generation& formed = {});
  void tell_missing(const ExchangeMessage& asked);
  // Waits for new members in place of those that are lost, if it does not wait already.
  void await_replacements();
  // Gives the members time to learn of a loss, or of the job's end, where one of them could not meet the others. Then
  // they meet again, without a host that has never met them.
  void watch_meeting();
  void meet_again();

  // constant after construction
  EventLoop& loop_;
  const Placement& placement_;
  const Placement& agents_;
  const Duration wait_;
  const Duration meet_;
  const Sink sink_;
  // loop only
  Membership membership_;
  ExchangeBoard board_;  // of the present generation
  std::optional<TimePoint> broken_since_;
  bool is_known_to_grow_ = false;  // what the agents were told last
  TimerId late_timer_ = 0;
  TimerId wait_timer_ = 0;  // while it runs, no generation has fewer members than the present one
  TimerId meet_timer_ = 0;  // while it runs, nobody meets again
  bool is_stopped_ = false;
};

}  // namespace hvd::launch
