// LoopWrites writes what the event loop of a running job learns of the job to its record. The loop must not wait, since
// agents that hear nothing from it end their ranks. So what cannot be written at once, because another process writes
// or the disk is full, is tried again.
//
// Thread: loop only, but for begin() and end().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/service/job_store.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class LoopWrites {
 public:
  // `store` must outlive it.
  LoopWrites(JobStore& store, std::int64_t job) : store_(store), job_(job) {}

  // A loop is about to run. Until end() no call of the store waits for other processes.
  void begin();
  // Says on which loop it is tried again; without one, end() does. The loop must not run after end().
  void retry_on(EventLoop& loop);
  void set_output(std::string directory, std::vector<std::string> rank_files);
  void set_addresses(std::vector<JobNode> known, bool has_logged_in);
  // Writes what is left, and may wait for other processes.
  Result<void> end();

 private:
  struct Output {
    std::string directory;
    std::vector<std::string> rank_files;
  };

  Result<void> write();
  void write_or_retry();

  JobStore& store_;
  const std::int64_t job_;
  EventLoop* loop_ = nullptr;
  bool is_to_retry_ = false;  // a timer is set
  // not written yet
  std::optional<Output> output_;
  std::vector<JobNode> addresses_;
  bool has_logged_in_ = false;
};

}  // namespace hvd::launch
