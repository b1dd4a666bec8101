// JoinCalls takes the calls of agents that join a running job by themselves (`hvdrun join`). It listens for as long as
// the job runs, and writes the file by which such an agent finds it and proves itself. What has called waits here until
// the job has a place for it; then this is the transport by which its session has it.
//
// Thread: loop only. The EventLoop and the Log outlive it; it outlives the streams that it hands out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/engines/held_agent.h"
#include "launcher/transport/dial_back.h"
#include "launcher/wire/join_file.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class JoinCalls final : public Transport {
 public:
  // An agent has called and reported, and is answered by seat() or refuse(). Called from the loop.
  using OnCall = std::function<void(int number)>;

  // Listens on all networks of this machine, or on its loopback if all who call are here. The file is written by
  // begin().
  static Result<std::unique_ptr<JoinCalls>> listen(EventLoop& loop, std::string path, bool is_local, Log& log);
  ~JoinCalls() override;
  JoinCalls(const JoinCalls&) = delete;
  JoinCalls& operator=(const JoinCalls&) = delete;

  // Writes the file of this job, and takes calls from now on.
  Result<void> begin(const std::string& job_id, OnCall on_call);
  // False when it has gone.
  [[nodiscard]] bool is_there(int number) const { return callers_.contains(number); }
  // Returns the version of this hvdrun, which whoever joins must have too.
  [[nodiscard]] static std::string version() { return HVD_VERSION; }
  [[nodiscard]] const ReadyMessage& ready(int number) const { return *callers_.at(number).agent->ready(); }
  // How many have called and have no place.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] const std::string& address_of(int number) const {
    return callers_.at(number).agent->opened().node_address;
  }
  // open() hands out this agent for the node whose first rank this is.
  void seat(int number, int rank);
  // Tells the agent why it is not taken; it ends.
  void refuse(int number, const ByeMessage& bye);
  // The job ends: removes the file, and refuses who has no place yet and who calls later.
  void stop(const ByeMessage& bye);
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override;

 private:
  struct Caller {
    std::unique_ptr<HeldAgent> agent;
    TimerId timer = 0;  // limits the wait for its report, or for its end
    bool is_seated = false;
  };

  JoinCalls(EventLoop& loop, std::string path, Log& log);
  int take();
  void on_ready(int number);
  void drop_later(int number, const std::string& why);

  EventLoop& loop_;
  const std::string path_;
  Log& log_;
  std::unique_ptr<DialBack> calls_;
  CallKey key_;
  std::string job_id_;  // empty: the file is not written
  OnCall on_call_;
  std::map<int, Caller> callers_;  // by number, in the order of their calls
  std::map<int, int> number_of_;   // by rank
  int next_number_ = 0;
  Scope scope_{loop_};
};

}  // namespace hvd::launch
