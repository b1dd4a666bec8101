#include "runtime/observe/timeline_writer.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "runtime/base/thread.h"

namespace hvd {
namespace {

// An event is in the file after this time: soon enough for scripts that read the file 100 ms after an operation, as
// they could with Horovod.
constexpr auto kInterval = std::chrono::milliseconds(50);
// A write is small enough to stay in a core's cache until it is written.
constexpr std::size_t kWriteBytes = 256U << 10U;
// While operations wait and nothing else happens, the file tells this often that they still do.
constexpr auto kStillInterval = std::chrono::seconds(1);
constexpr int kLowestPriority = 19;

}  // namespace

Result<std::unique_ptr<TimelineWriter>> TimelineWriter::start(TimelineFile file, TraceRing& ring,
                                                              std::atomic<std::uint64_t>& dropped,
                                                              std::function<void(const Error&)> on_failed) {
  std::unique_ptr<TimelineWriter> writer(new TimelineWriter(std::move(file), ring, dropped, std::move(on_failed)));
  writer->text_.begin();
  if (!writer->flush(false)) {
    return Error::from_errno("cannot write the timeline to '" + writer->file_.path + "'");
  }
  writer->has_begun_ = true;
  writer->thread_ = hvd::start_thread("hvd-timeline", [self = writer.get()] { self->run(); });
  return writer;
}

TimelineWriter::TimelineWriter(TimelineFile file, TraceRing& ring, std::atomic<std::uint64_t>& dropped,
                               std::function<void(const Error&)> on_failed)
    : file_(std::move(file)), ring_(ring), dropped_(dropped), on_failed_(std::move(on_failed)) {}

// Writes the rest on this thread, because the writing thread may get no processor for long.
TimelineWriter::~TimelineWriter() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mu_);
    is_stopping_.store(true);
  }
  changed_.notify_all();
  thread_.join();
  write_some(true);
  if (file_.takes_only_appends && !has_failed_) {
    write(text_.with_end(0));
  }
  unlock_timeline(file_.fd);
}

// It takes no lock: if the thread misses the call, it looks at the end of the interval.
void TimelineWriter::rouse() {
  if (!is_roused_.load(std::memory_order_relaxed) && !is_roused_.exchange(true)) {
    changed_.notify_all();
  }
}

void TimelineWriter::run() {
  // The ranks' computing and polling threads go first. (On Linux this concerns only this thread.)
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLowestPriority);
  while (!is_stopping_.load()) {
    {
      std::unique_lock lock(mu_);
      changed_.wait_for(lock, kInterval, [this] { return is_stopping_.load() || is_roused_.load(); });
    }
    is_roused_.store(false);
    write_some(false);
  }
}

// Writes all records; except for the last time, it stops as soon as the writer is to stop.
void TimelineWriter::write_some(bool is_last) {
  text_.look_at_clock();
  while ((is_last || !is_stopping_.load(std::memory_order_relaxed)) && text_.add_next(ring_)) {
    if (text_.text().size() >= kWriteBytes) {
      flush(false);
    }
  }
  const std::uint64_t dropped = dropped_.load(std::memory_order_relaxed);
  if (dropped != told_dropped_) {
    text_.add_dropped(dropped - std::exchange(told_dropped_, dropped));
  }
  flush(text_.has_open_phases() && (is_last || std::chrono::steady_clock::now() - flushed_at_ >= kStillInterval));
}

// Without new text, it writes the end again only if that is wanted. False: the file cannot be written, and nothing more
// will be.
bool TimelineWriter::flush(bool wants_end) {
  const bool has_end = !file_.takes_only_appends;
  const std::size_t bytes = text_.text().size();
  if ((bytes == 0 && !(has_end && wants_end)) || has_failed_) {
    text_.clear();
    return !has_failed_;
  }
  const std::string_view text = has_end ? text_.with_end(end_bytes_) : text_.text();
  if (!write(text)) {
    return false;
  }
  written_ += bytes;
  end_bytes_ = text.size() - bytes;
  flushed_at_ = std::chrono::steady_clock::now();
  text_.clear();
  return true;
}

// After what was written, but for its end.
bool TimelineWriter::write(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto place = static_cast<off_t>(written_ + at);
    const ssize_t put = ::pwrite(file_.fd.get(), text.data() + at, text.size() - at, place);
    if (put < 0 && errno != EINTR) {
      has_failed_ = true;
      if (has_begun_) {
        on_failed_(Error::from_errno("the timeline '" + file_.path + "' ends here"));
      }
      return false;
    }
    at += put > 0 ? static_cast<std::size_t>(put) : 0;
  }
  return true;
}

}  // namespace hvd
