// LinkCheck has the agents of several hosts measure the links between them, round by round (link_plan.h). It measures
// both directions of a pair one after the other, each with a deadline.
//
// Thread: loop only. The sink is called from the loop, and from start().
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/check/check_result.h"
#include "launcher/check/link_plan.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class LinkCheck {
 public:
  struct Host {
    int node = 0;         // index in the placement, for the sink
    std::string address;  // numeric; the host's agent listens there
  };
  struct Sink {
    std::function<void(int node, AgentMessage type, const std::string& body)> send;
    std::function<void(int round, int rounds)> on_round;
    std::function<void()> on_done;  // called once, last
  };

  // `patience` limits one direction of one pair.
  LinkCheck(EventLoop& loop, std::vector<Host> hosts, Duration patience, Sink sink);
  ~LinkCheck();
  LinkCheck(const LinkCheck&) = delete;
  LinkCheck& operator=(const LinkCheck&) = delete;

  void start();
  void on_listening(int node, const ListeningMessage& listening);
  void on_probed(int node, const ProbeResult& result);
  // The host's agent is gone.
  void on_lost(int node, const std::string& why);
  // Stops: nothing further is tried, and on_done is not called any more.
  void give_up();
  [[nodiscard]] bool is_over() const { return is_over_; }

  // Returns all links that were planned, in the order of their hosts.
  [[nodiscard]] std::vector<CheckedLink> links() const;

 private:
  struct Probe {
    CheckedLink link;
    bool is_second = false;  // the first direction of the pair is already done
    bool has_dialed = false;
    bool has_listened = false;
    TimerId timer = 0;
  };

  void next_round();
  void begin(int from, int to, bool is_second);
  void finish(std::uint32_t number, const std::string& error);
  void finish_if_whole(std::uint32_t number);
  [[nodiscard]] const std::string& address_of(int node) const;

  EventLoop& loop_;
  const std::vector<Host> hosts_;
  const Duration patience_;
  const Sink sink_;
  std::vector<LinkRound> rounds_;
  std::size_t round_ = 0;                  // the next one
  std::map<std::uint32_t, Probe> probes_;  // under way, by number
  std::uint32_t next_number_ = 1;
  std::map<std::pair<int, int>, CheckedLink> done_;
  bool is_over_ = false;
};

}  // namespace hvd::launch
