// TimelineText turns the timeline's records into events of the Trace Event Format ("Trace Event Format", Google, 2016),
// named as Horovod names them. Each tensor is a process of the trace, as in Horovod, and its events nest: where ranks
// ask for the next operation before the last one has ended here, that negotiation has a row of its own.
//
// Each record makes several events, and a step makes hundreds of records. So text that is the same for a kind, a tensor
// or a moment is made once and copied. Thread: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/op_kind.h"
#include "runtime/core/stage_sink.h"
#include "runtime/observe/ticks.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineText {
 public:
  TimelineText();

  // Writes the beginning of the array, with the time of day.
  void begin();
  // Adds the next record of the ring; false: there is none.
  bool add_next(TraceRing& ring);
  void add_dropped(std::uint64_t records);
  // Measures the length of a tick again, which becomes more exact with time; times already written stay in order. Call
  // it now and then.
  void look_at_clock();

  [[nodiscard]] std::string_view text() const { return {text_.data(), bytes_}; }
  // Some phase has begun and not ended, so the file's end shall tell until when that was known.
  [[nodiscard]] bool has_open_phases() const { return open_phases_ > 0; }
  // Returns the text with the array's end, which the next events overwrite. While phases are open, an event before it
  // says until when the file tells: so a job that is killed in a long wait shows how long that was. The whole has at
  // least the given length, so that nothing is left of a longer end before.
  [[nodiscard]] std::string_view with_end(std::size_t least);
  void clear() { bytes_ = 0; }

 private:
  // The text of one kind of event, up to the number of the tensor.
  using Heads = std::array<std::array<std::string, kTracePhases>, kOpKindCount>;

  struct Tensor {
    std::string arguments;   // of the event that ends its operation
    std::uint32_t open = 0;  // bits by TracePhase
    bool is_ahead = false;   // its negotiation is in the second row
    bool has_ahead_row = false;
  };

  Tensor& tensor_of(const TraceRecord& record);
  void add_phases(const TraceRecord& record);
  void add_phase(const TraceRecord& record, TracePhase phase, const Heads& heads);
  void add_rank(const TraceRecord& record);
  void add_name(const TraceRecord& record, TraceRing& ring);
  void take_shape(const TraceRecord& record, TraceRing& ring);
  void add_stage(const TraceRecord& record, TraceRing& ring);
  void name_ahead_row(std::uint64_t tensor);
  [[nodiscard]] std::uint64_t ns_of(std::uint64_t ticks) const;
  void set_time(std::uint64_t ticks);
  void make_room(std::size_t bytes);
  void put(std::string_view text);
  void put_number(std::uint64_t number);

  const TickScale scale_;
  Heads begins_;
  Heads ends_;
  std::array<bool, kStageCount> has_row_{};  // by Stage: its row has its name
  std::vector<Tensor> tensors_;              // by number
  std::size_t open_phases_ = 0;
  std::vector<char> text_;
  std::size_t bytes_ = 0;  // length of the text
  // The conversion from ticks to nanoseconds: it starts here, at this rate.
  std::uint64_t base_ticks_ = 0;
  double base_ns_ = 0;
  double ns_per_tick_ = 0;
  // The time of the events being added: the text after the row's number, without the closing brace.
  std::uint64_t told_ticks_ = 0;
  std::string time_;
};

// Formats it as the inside of a JSON string; what is not UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text);

}  // namespace hvd
