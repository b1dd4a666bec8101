// TimelineWriter: makes the timeline's file of what comes through the ring, on a thread of its own that takes what the
// others leave of the processors.
//
// The file is a whole JSON array after every write: each one goes over the closing bracket of the last and ends with a
// new one. A process that is killed in the middle of a write leaves an array without its end, which the format allows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/observe/timeline_text.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineWriter {
 public:
  // Makes the file, which may replace one, and the thread. `ring` and `dropped` must outlive it. `on_failed`: the file
  // cannot be written any more; from the thread, or from who ends it.
  static Result<std::unique_ptr<TimelineWriter>> start(const std::string& path, TraceRing& ring,
                                                       std::atomic<std::uint64_t>& dropped,
                                                       std::function<void(const Error&)> on_failed);
  // Writes what is left.
  ~TimelineWriter();
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  // The ring fills faster than usual. Thread: any.
  void rouse();

 private:
  TimelineWriter(std::string path, Fd fd, TraceRing& ring, std::atomic<std::uint64_t>& dropped,
                 std::function<void(const Error&)> on_failed);
  void run();
  void write_some(bool is_last);
  bool flush();

  // constant after construction
  const std::string path_;
  const Fd fd_;
  TraceRing& ring_;
  std::atomic<std::uint64_t>& dropped_;
  const std::function<void(const Error&)> on_failed_;
  bool has_begun_ = false;  // what fails before is start()'s
  // the thread, and when that is over who ends it
  TimelineText text_;          // not written yet
  std::uint64_t written_ = 0;  // bytes before the closing bracket
  bool has_failed_ = false;
  std::uint64_t told_dropped_ = 0;
  // any thread
  std::atomic<bool> is_roused_ = false;
  std::atomic<bool> is_stopping_ = false;  // changes under mu_
  std::mutex mu_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace hvd
