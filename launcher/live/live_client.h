// These functions find the running jobs of this user on this machine, and ask one of them. They block, so they are for
// commands that do nothing else meanwhile.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/live/live_folder.h"
#include "launcher/live/live_messages.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct FoundJob {
  LiveJob job;
  std::string socket;
  std::string since{};     // when it began, as "2026-11-22T01:02:03Z"; empty: not known
  bool is_silent = false;  // it does not answer, as an hvdrun that is stopped; of `job` there is the id alone
};

// Returns the jobs that run. Sockets that hvdruns have left which were killed are removed.
Result<std::vector<FoundJob>> running_jobs(const LiveFolder& folder);
// Does the same for all the folders where jobs of this process's user may be. A folder besides its own that cannot be
// used is told only if no job is found.
Result<std::vector<FoundJob>> running_jobs(const std::vector<std::string>& environment);

// Chooses the job that `reference` names by its id, the beginning of its id, its name, its uuid or hvdrun's process
// number; an empty one names the only job. The error says which jobs there are, or that the chosen one does not answer.
// Pure.
Result<FoundJob> choose_job(const std::vector<FoundJob>& jobs, const std::string& reference);

// LiveAnswer is a question that was asked, and its answer as it comes.
class LiveAnswer {
 public:
  // Asks the job at this socket.
  static Result<LiveAnswer> ask(const std::string& socket, LiveMessage question, std::string_view body);

  // Returns the next part of the answer; nullopt: the answer is complete. kTimeout: nothing came before the deadline,
  // and next() may be called again. kLostPeer: the job has ended meanwhile. A refusal is an error too.
  Result<std::optional<Frame>> next(Deadline deadline);
  // Readable when next() has something to do.
  [[nodiscard]] int fd() const { return connection_.get(); }
  // Returns the number that the hvdrun has here which answers; 0: it is of a pid namespace that is not seen from here.
  [[nodiscard]] int pid() const;

 private:
  explicit LiveAnswer(Fd connection) : connection_(std::move(connection)) {}

  Fd connection_;
  FrameDecoder decoder_{kLiveFrames};
};

}  // namespace hvd::launch
