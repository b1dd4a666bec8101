#include "runtime/observe/timeline_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "runtime/base/thread.h"
#include "runtime/core/op_kind.h"
#include "runtime/observe/timeline.h"

namespace hvd {
namespace {

// What has happened is in the file this much later.
constexpr auto kInterval = std::chrono::milliseconds(50);
constexpr std::size_t kWriteBytes = 1U << 20U;
constexpr std::string_view kEnd = "\n]\n";
constexpr std::size_t kMostExtents = 4;

template <typename... Parts>
std::string formatted(const char* format, Parts... parts) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, parts...);
  return text.data();
}

std::string phase_name(TracePhase phase, OpKind op) {
  switch (phase) {
    case TracePhase::kNegotiate:
      return std::string("NEGOTIATE_") + name_of(op);
    case TracePhase::kOperation:
      return name_of(op);
    case TracePhase::kQueue:
      return "QUEUE";
    case TracePhase::kPack:
      return "MEMCPY_IN_FUSION_BUFFER";
    case TracePhase::kMove:
      return std::string("HVD_") + name_of(op);
    case TracePhase::kUnpack:
      return "MEMCPY_OUT_FUSION_BUFFER";
  }
  return "?";
}

// The bytes of the UTF-8 character at the front (RFC 3629), 0 when there is none.
std::size_t utf8_bytes(std::string_view text) {
  const auto at = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = at(0) < 0x80   ? 1
                            : at(0) < 0xc2 ? 0
                            : at(0) < 0xe0 ? 2
                            : at(0) < 0xf0 ? 3
                            : at(0) < 0xf5 ? 4
                                           : 0;
  if (bytes == 0 || text.size() < bytes) {
    return 0;
  }
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0U) != 0x80U) {
      return 0;
    }
  }
  // Longer than need be, a surrogate, or beyond the last character.
  const bool is_wrong = (at(0) == 0xe0 && at(1) < 0xa0) || (at(0) == 0xed && at(1) > 0x9f) ||
                        (at(0) == 0xf0 && at(1) < 0x90) || (at(0) == 0xf4 && at(1) > 0x8f);
  return is_wrong ? 0 : bytes;
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string json;
  while (!text.empty()) {
    const std::size_t bytes = utf8_bytes(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (bytes == 0) {
      json += "\xef\xbf\xbd";
    } else if (c < 0x20 || c == 0x7f) {
      json += formatted("\\u%04x", static_cast<unsigned>(c));
    } else {
      json += c == '"' || c == '\\' ? "\\" : "";
      json += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return json;
}

void put_shape(TraceRecord& record, Dtype dtype, std::span<const std::int64_t> shape) {
  if (shape.size() > kMostExtents) {
    return;
  }
  record.payload[0] = 1;
  record.payload[1] = static_cast<char>(dtype);
  record.payload[2] = static_cast<char>(shape.size());
  if (!shape.empty()) {  // of a scalar there may be no address
    std::memcpy(record.payload + 8, shape.data(), shape.size_bytes());
  }
}

std::string shape_json(const TraceRecord& record) {
  if (record.payload[0] != 1) {
    return "";
  }
  std::string extents;
  for (int i = 0; i < record.payload[2]; ++i) {
    std::int64_t extent = 0;
    std::memcpy(&extent, record.payload + 8 + static_cast<std::size_t>(i) * sizeof extent, sizeof extent);
    extents += (i > 0 ? ", " : "") + std::to_string(extent);
  }
  return std::string(R"({"dtype":")") + name_of(static_cast<Dtype>(record.payload[1])) + R"(","shape":"[)" + extents +
         R"(]"})";
}

Result<std::unique_ptr<TimelineWriter>> TimelineWriter::start(const std::string& path, TraceRing& ring,
                                                              std::atomic<std::uint64_t>& dropped,
                                                              std::function<void(const Error&)> on_failed) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.is_open()) {
    return Error::from_errno("cannot write the timeline to '" + path + "'");
  }
  std::unique_ptr<TimelineWriter> writer(new TimelineWriter(path, std::move(fd), ring, dropped, std::move(on_failed)));
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  writer->text_ = "[";
  writer->add_event(
      formatted(R"({"name":"start_time","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":%lld}})",
                static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count())));
  if (!writer->flush()) {
    return Error::from_errno("cannot write the timeline to '" + path + "'");
  }
  writer->start_thread();
  return writer;
}

TimelineWriter::TimelineWriter(std::string path, Fd fd, TraceRing& ring, std::atomic<std::uint64_t>& dropped,
                               std::function<void(const Error&)> on_failed)
    : path_(std::move(path)), fd_(std::move(fd)), ring_(ring), dropped_(dropped), on_failed_(std::move(on_failed)) {}

TimelineWriter::~TimelineWriter() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mu_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
}

void TimelineWriter::start_thread() {
  thread_ = hvd::start_thread("hvd-timeline", [this] { run(); });
}

void TimelineWriter::run() {
  for (bool is_last = false; !is_last;) {
    {
      std::unique_lock lock(mu_);
      changed_.wait_for(lock, kInterval, [this] { return is_stopping_; });
      is_last = is_stopping_;
    }
    write_some();
  }
}

// All that is there.
void TimelineWriter::write_some() {
  us_per_tick_ = scale_.seconds_per_tick() * 1e6;
  while (const auto record = ring_.take()) {
    add(*record);
    if (text_.size() >= kWriteBytes) {
      flush();
    }
  }
  const std::uint64_t dropped = dropped_.load(std::memory_order_relaxed);
  if (dropped != told_dropped_) {
    const double now = static_cast<double>(ticks_between(scale_.began(), ticks_now())) * us_per_tick_;
    add_event(formatted(R"({"name":"DROPPED","ph":"i","s":"g","pid":0,"ts":%.3f,"args":{"records":%llu}})", now,
                        static_cast<unsigned long long>(dropped - told_dropped_)));
    told_dropped_ = dropped;
  }
  flush();
}

void TimelineWriter::add_event(std::string_view json) {
  text_ += std::exchange(has_events_, true) ? ",\n" : "\n";
  text_ += json;
}

void TimelineWriter::add_name(const TraceRecord& record) {
  if (record.kind == TraceRecord::Kind::kName) {
    name_.clear();
    name_parts_ = TraceRecord::parts_of(record.payload_bytes);
  }
  name_.append(record.payload, std::min(record.payload_bytes - name_.size(), TraceRecord::kPayload));
  if (--name_parts_ == 0) {
    add_event(formatted(R"({"name":"process_name","ph":"M","pid":%u,"args":{"name":")", record.tensor) +
              json_text(name_) + R"("}})");
    add_event(formatted(R"({"name":"process_sort_index","ph":"M","pid":%u,"args":{"sort_index":%u}})", record.tensor,
                        record.tensor));
  }
}

void TimelineWriter::add(const TraceRecord& record) {
  const double us = static_cast<double>(ticks_between(scale_.began(), record.ticks)) * us_per_tick_;
  const auto phase = static_cast<TracePhase>(record.phase);
  const auto op = static_cast<OpKind>(record.op);
  switch (record.kind) {
    case TraceRecord::Kind::kName:
    case TraceRecord::Kind::kMoreOfName:
      return add_name(record);
    case TraceRecord::Kind::kBegin:
      return add_event(formatted(R"({"name":"%s","ph":"B","pid":%u,"tid":0,"ts":%.3f})", phase_name(phase, op).c_str(),
                                 record.tensor, us));
    case TraceRecord::Kind::kEnd: {
      const std::string shape = shape_json(record);
      return add_event(formatted(R"({"name":"%s","ph":"E","pid":%u,"tid":0,"ts":%.3f)", phase_name(phase, op).c_str(),
                                 record.tensor, us) +
                       (shape.empty() ? "}" : ",\"args\":" + shape + "}"));
    }
    case TraceRecord::Kind::kRankReady:
      return add_event(
          formatted(R"({"name":"%d","ph":"X","pid":%u,"tid":0,"ts":%.3f,"dur":0})", record.rank, record.tensor, us));
    case TraceRecord::Kind::kCycle:
      return add_event(formatted(R"({"name":"CYCLE_START","ph":"i","s":"g","pid":0,"tid":0,"ts":%.3f})", us));
  }
}

// False: it cannot be written, and nothing more will be.
bool TimelineWriter::flush() {
  if (text_.empty() || has_failed_) {
    text_.clear();
    return !has_failed_;
  }
  const std::size_t bytes = text_.size();
  text_ += kEnd;
  for (std::size_t at = 0; at < text_.size();) {
    const ssize_t put = ::pwrite(fd_.get(), text_.data() + at, text_.size() - at, static_cast<off_t>(written_ + at));
    if (put < 0 && errno != EINTR) {
      has_failed_ = true;
      if (thread_.joinable()) {
        on_failed_(Error::from_errno("the timeline '" + path_ + "' ends here"));
      }
      return false;
    }
    at += put > 0 ? static_cast<std::size_t>(put) : 0;
  }
  written_ += bytes;
  text_.clear();
  return true;
}

}  // namespace hvd
