// TimelineReader reads a timeline as Horovod's format has it and sums it up. Events are one a line; an array in one
// line is read too, and both within an object with "traceEvents". One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launcher/timeline/time_spans.h"
#include "launcher/timeline/timeline_summary.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class TimelineReader {
 public:
  // Takes the next line. kInvalid: it is no event; the error names the line.
  Result<void> add_line(std::string_view line);
  // Call it once, after the last line. kInvalid: the last lines were no events, or there was none at all.
  Result<TimelineSummary> finish();

 private:
  struct Open {  // what has begun on a tensor and not ended
    std::string name;
    double at = 0;
  };
  struct Asked {  // when ranks have asked for the operation that is being negotiated
    double first = 0;
    double before_last = 0;
    double last = 0;
    int rank = -1;  // the last one
    std::size_t count = 0;
  };
  struct Sum {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    TimeSpans waited;
    TimeSpans worked;
  };
  struct Tensor {
    std::string name;
    std::string operation;
    std::vector<Open> open;           // but for the negotiation, outermost first
    std::optional<Open> negotiation;  // of the next operation, which may begin before the last one has ended
    Asked asked;
    double known_at = -1;  // all ranks had asked for the operation that begins next; below 0: not known
    Sum sum;
  };
  struct Late {
    std::uint64_t last = 0;
    TimeSpans waited_for;
  };

  Result<void> add_events(const nlohmann::json& value);
  void add_event(const nlohmann::json& event);
  void begin(Tensor& tensor, const std::string& name, double at);
  void end(Tensor& tensor, double at, const nlohmann::json& event);
  void add_stage(const std::string& name, double at, const nlohmann::json& duration);
  void ask(Tensor& tensor, int rank, double at);
  void end_negotiation(Tensor& tensor, double at);
  void end_operation(Tensor& tensor, const Open& ended, double at, std::uint64_t bytes);
  static TimelineSummary::Share share_of(const Sum& sum);

  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> tensors_;  // by "pid" and "tid"
  std::map<std::int64_t, std::string> names_;                        // of tensors, by "pid"
  std::map<std::string, Sum> operations_;
  std::map<std::string, std::pair<std::uint64_t, TimeSpans>> phases_;
  std::map<int, Late> ranks_;
  Sum all_;
  double first_ = -1;  // of all events
  double last_ = -1;
  bool has_begun_ = false;  // a line that is not empty was there
  std::uint64_t line_ = 0;
  std::uint64_t broken_line_ = 0;  // a line that could not be read, which may be the last; 0: none
};

}  // namespace hvd::launch
