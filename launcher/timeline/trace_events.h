// read_trace() takes apart a trace in the Trace Event Format ("Trace Event Format", Google, 2016), event by event and
// whatever its lines look like. Traces are as long as jobs, so nothing but the present event is in memory.
//
// Pure, but for the stream. Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <optional>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

// TraceEvent is one event, as far as a timeline needs it. Value type.
struct TraceEvent {
  std::string phase;  // "ph": "B", "E", "X", "M", ...
  std::string name;
  std::int64_t pid = 0;
  std::optional<double> at;        // "ts", in microseconds
  std::optional<double> duration;  // "dur", likewise
  // of "args"
  std::string own_name;
  std::string dtype;
  std::string shape;
  std::uint64_t records = 0;
};

// Reads an array of events, or an object whose "traceEvents" is one. As in other readers, the array may lack its end,
// and may have a comma before it. Returns whether the text ends within an event, as where its writer was killed.
// kInvalid: it is something else; the error names the line.
Result<bool> read_trace(std::istream& in, const std::function<void(const TraceEvent&)>& take);

}  // namespace hvd::launch
