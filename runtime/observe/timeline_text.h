// TimelineText: what the timeline's records say, as events of the Trace Event Format ("Trace Event Format", Google,
// 2016), named as Horovod names them. Each tensor is a process of the trace, as Horovod has it.
//
// Several events are made for each record, hundreds of records in a step: what is the same for all of a kind, of a
// tensor or of a moment is made once and copied. Thread: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/op_kind.h"
#include "runtime/observe/ticks.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineText {
 public:
  TimelineText();

  // The array's beginning: when it was, by the clock that people read.
  void begin();
  // The next of what is in the ring; false: there is nothing.
  bool add_next(TraceRing& ring);
  void add_dropped(std::uint64_t records);
  // How long a tick is becomes clearer with time; times that were told stay in order. Now and then.
  void look_at_clock();

  [[nodiscard]] std::string_view text() const { return {text_.data(), bytes_}; }
  // The same with the array's end, which the next events go over.
  [[nodiscard]] std::string_view with_end();
  void clear() { bytes_ = 0; }

 private:
  // One kind of event: the text up to the number of the tensor.
  using Heads = std::array<std::array<std::string, kTracePhases>, kOpKindCount>;

  void add_phases(const TraceRecord& record);
  void add_phase(const TraceRecord& record, TracePhase phase, const Heads& heads);
  void add_rank(const TraceRecord& record);
  void add_name(const TraceRecord& record, TraceRing& ring);
  void take_shape(const TraceRecord& record, TraceRing& ring);
  void set_time(std::uint64_t ticks);
  void make_room(std::size_t bytes);
  void put(std::string_view text);
  void put_number(std::uint64_t number);

  const TickScale scale_;
  Heads begins_;
  Heads ends_;
  std::vector<std::string> arguments_;  // by tensor: of the end of its operation
  std::vector<char> text_;
  std::size_t bytes_ = 0;  // of it
  // From a tick to a nanosecond: from here on, at this rate.
  std::uint64_t base_ticks_ = 0;
  double base_ns_ = 0;
  double ns_per_tick_ = 0;
  // The time of what is added: behind the tensor's number, without the closing brace.
  std::uint64_t told_ticks_ = 0;
  std::string time_;
};

// As the inside of a JSON string; what is not UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text);

}  // namespace hvd
