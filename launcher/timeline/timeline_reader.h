// TimelineReader sums up the events of a timeline as Horovod's format has them. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/timeline/time_spans.h"
#include "launcher/timeline/timeline_summary.h"
#include "launcher/timeline/trace_events.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class TimelineReader {
 public:
  void add(const TraceEvent& event);
  // Call it once, after the last event. kInvalid: they were none of a timeline.
  Result<TimelineSummary> finish(bool is_cut);

 private:
  struct Open {  // what has begun on a tensor and not ended
    std::string name;
    double at = 0;
  };
  struct Asked {
    int rank = 0;
    double at = 0;
  };
  struct Sum {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    TimeSpans waited;
    TimeSpans worked;
  };
  struct Tensor {
    std::string name;
    bool is_named = false;
    std::string operation;
    std::vector<Open> open;           // but for the negotiation, outermost first
    std::optional<Open> negotiation;  // of the next operation, which may begin before the last one has ended
    std::vector<Asked> asked;         // in that negotiation, in the order of the file
    double known_at = -1;             // all ranks had asked for the operation that begins next; below 0: not known
    Sum sum;
  };
  struct Late {
    std::uint64_t last = 0;
    TimeSpans waited_for;
    TimeSpans behind;
    TimeSpans waiting;  // it had asked for an operation, and others had not
  };

  void begin(Tensor& tensor, const std::string& name, double at);
  void end(Tensor& tensor, double at, const TraceEvent& event);
  void add_stage(const TraceEvent& event, double at);
  void end_negotiation(Tensor& tensor, double at);
  void end_operation(Tensor& tensor, const Open& ended, double at, std::uint64_t bytes);
  void add_wait(Tensor& tensor, double from, double until);
  void count_elsewhere(Tensor& tensor);
  void add_unfinished(TimelineSummary& summary);
  [[nodiscard]] std::vector<int> missing_in(const Tensor& tensor, std::set<int> joined) const;
  static TimelineSummary::Share share_of(const Sum& sum);
  static TimelineSummary::Rank row_of(int rank, const Late& late);

  std::map<std::int64_t, Tensor> tensors_;     // by "pid"
  std::map<std::string, std::set<int>> sets_;  // ranks that have asked for anything, by the name of their process set
  std::map<std::string, Sum> operations_;
  std::map<std::string, std::pair<std::uint64_t, TimeSpans>> phases_;
  std::map<int, Late> ranks_;
  Sum all_;
  bool is_timeline_ = false;
  std::uint64_t dropped_ = 0;
  double first_ = -1;  // of the events of tensors and stages
  double last_ = -1;
  double told_until_ = -1;  // of all events
};

}  // namespace hvd::launch
