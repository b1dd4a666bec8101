// TimelineWriter: makes the timeline's file of what comes through the ring, on a thread of its own: the Trace Event
// Format's JSON array ("Trace Event Format", Google, 2016). Each tensor is a process of the trace, as Horovod has it.
//
// The file is a whole JSON array after every write: each one goes over the closing bracket of the last and ends with a
// new one. A process that is killed in the middle of a write leaves an array without its end, which the format allows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/observe/ticks.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineWriter {
 public:
  // Makes the file, which may replace one, and the thread. `ring` and `dropped` must outlive it.
  static Result<std::unique_ptr<TimelineWriter>> start(const std::string& path, TraceRing& ring,
                                                       std::atomic<std::uint64_t>& dropped,
                                                       std::function<void(const Error&)> on_failed);
  // Writes what is left.
  ~TimelineWriter();
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

 private:
  TimelineWriter(std::string path, Fd fd, TraceRing& ring, std::atomic<std::uint64_t>& dropped,
                 std::function<void(const Error&)> on_failed);
  void start_thread();
  void run();
  void write_some();
  void add(const TraceRecord& record);
  void add_name(const TraceRecord& record);
  void add_event(std::string_view json);
  bool flush();

  // constant after construction
  const std::string path_;
  const Fd fd_;
  TraceRing& ring_;
  std::atomic<std::uint64_t>& dropped_;
  const std::function<void(const Error&)> on_failed_;
  const TickScale scale_;
  // the thread only
  std::string text_;           // not written yet
  std::uint64_t written_ = 0;  // bytes before the closing bracket
  bool has_events_ = false;
  bool has_failed_ = false;
  std::string name_;  // that is coming in parts
  std::size_t name_parts_ = 0;
  std::uint64_t told_dropped_ = 0;
  double us_per_tick_ = 0;
  // guarded by mu_
  std::mutex mu_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::thread thread_;
};

// An operation's type and extents, into its record's payload and out of it as JSON ("" when there is none).
void put_shape(TraceRecord& record, Dtype dtype, std::span<const std::int64_t> shape);
std::string shape_json(const TraceRecord& record);

// As the inside of a JSON string; what is not UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text);

}  // namespace hvd
