// TimelineWriter writes the timeline's file from the ring, on a thread of its own that runs at low priority so that it
// does not slow the ranks.
//
// The file is a whole JSON array after every write: each write overwrites the closing bracket of the last and ends with
// a new one. A process that is killed in the middle of a write leaves an array without its end, which the format
// allows. A file that takes only appends gets the bracket at the end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "runtime/base/result.h"
#include "runtime/observe/timeline_file.h"
#include "runtime/observe/timeline_text.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineWriter {
 public:
  // Begins the file, which is empty, and makes the thread. `ring` and `dropped` must outlive it. `on_failed` is called
  // if the file cannot be written any more, from the thread or from the one that ends it.
  static Result<std::unique_ptr<TimelineWriter>> start(TimelineFile file, TraceRing& ring,
                                                       std::atomic<std::uint64_t>& dropped,
                                                       std::function<void(const Error&)> on_failed);
  // Writes the remaining records.
  ~TimelineWriter();
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  // Wakes the thread, because the ring fills faster than usual. Thread: any.
  void rouse();

 private:
  TimelineWriter(TimelineFile file, TraceRing& ring, std::atomic<std::uint64_t>& dropped,
                 std::function<void(const Error&)> on_failed);
  void run();
  void write_some(bool is_last);
  bool flush(bool wants_end);
  bool write(std::string_view text);

  // constant after construction
  const TimelineFile file_;
  TraceRing& ring_;
  std::atomic<std::uint64_t>& dropped_;
  const std::function<void(const Error&)> on_failed_;
  bool has_begun_ = false;  // a failure before this is returned by start()
  // used by the thread, and after its end by the thread that ends it
  TimelineText text_;          // not written yet
  std::uint64_t written_ = 0;  // bytes before the end that is overwritten
  std::size_t end_bytes_ = 0;  // of that end
  std::chrono::steady_clock::time_point flushed_at_{};
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
