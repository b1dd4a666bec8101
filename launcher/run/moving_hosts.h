// MovingHosts lets hosts join and leave the running job: those that a source tells of (launcher/offers), machines that
// call by themselves (launcher/joining), and nodes whose agents ask to leave.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/joining/join_calls.h"
#include "launcher/offers/host_updates.h"
#include "launcher/run/job_parts.h"

namespace hvd::launch {

class MovingHosts {
 public:
  // `open` opens the session of a node that was added; `sink` receives what it reports.
  MovingHosts(const JobParts& job, SessionSink& sink, std::function<void(int node)> open)
      : job_(job), sink_(sink), open_(std::move(open)) {}

  // Call one of these before the job begins, or both. Hosts of `source`, or machines that call, join and leave.
  // `offers` has what is known of the hosts; null: nothing.
  void follow(HostSource& source, const HostOffers* offers);
  void take_joiners(JoinCalls& calls);
  // Machines may call from now on. Who calls before the ranks run waits.
  Result<void> listen();
  // The ranks were started: hosts may join.
  void begin();
  // The job ends, and takes nobody any more.
  void stop();

  [[nodiscard]] bool may_grow() const { return updates_ != nullptr || calls_ != nullptr; }
  [[nodiscard]] bool has_joined(int node) const { return joined_nodes_.contains(node); }
  // The last words to an agent that has joined, when the job goes on without it or has ended; to others nothing.
  [[nodiscard]] ByeMessage last_words(int node) const;
  // The agent of the node asks that its ranks leave. Returns false if the job needs them.
  bool on_leaving(int node, const std::string& why);
  // The agent of the node ends its ranks. Returns true if those of all other nodes have said before that they end or
  // leave.
  bool on_ending(int node);
  // The node has no processes any more. An agent that is not needed any more ends.
  void on_done(int node);
  // A rank of the node is being started again.
  void on_restart(int node);
  // Ends an agent that came to the running job, and whose ranks have all ended or are done without.
  void end_if_idle(int node);
  // Takes no more calls, once ranks have ended in order.
  void stop_joining_if_over();
  // Looks again at which hosts are to join or leave, after what goes on now.
  void look_later();
  // Nothing new is started on the host for a time, because of `what` it does.
  void leave_alone(int node, const std::string& what);

 private:
  HostUpdates::Sink updates_sink();
  // The ranks that are there; nothing: nobody may join or leave.
  [[nodiscard]] std::optional<std::vector<HostedRank>> hosted_ranks() const;
  [[nodiscard]] HostUse use() const;
  // Returns the new node, which must be opened.
  int add_node(const JoiningRanks& ranks);
  void stop_joining();
  // Gives an agent that has called a place in the job, or refuses it.
  void seat(int number);
  void refuse(int number, const Error& why);
  // The ranks of the nodes that have not asked to leave.
  [[nodiscard]] std::vector<int> staying_ranks() const;
  // The job did not begin with this node.
  [[nodiscard]] bool came_later(int node) const { return node >= first_nodes_; }
  [[nodiscard]] bool any_runs(const std::vector<int>& ranks) const;
  // Tells who is to be released now.
  void update_leaving();

  const JobParts& job_;
  SessionSink& sink_;
  const std::function<void(int node)> open_;
  std::unique_ptr<HostUpdates> updates_;  // null: nobody tells of other hosts than those that the job began with
  JoinCalls* calls_ = nullptr;            // null: nobody may call to join
  int first_nodes_ = 0;                   // with so many the job began
  std::set<int> joined_nodes_;            // nodes whose agents have called
  std::vector<int> early_calls_;          // that have come before the ranks were started
  std::set<int> leaving_nodes_;           // nodes that have asked to leave
  std::vector<int> leaving_hosts_;        // ranks whose hosts are to be given back
  bool is_over_ = false;
};

}  // namespace hvd::launch
