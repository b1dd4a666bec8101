#include "launcher/timeline/time_spans.h"

#include <algorithm>

namespace hvd::launch {

void TimeSpans::add(double begin, double end) {
  if (end <= begin) {
    return;
  }
  // Most come in order, and many overlap the one before: those take no memory of their own.
  if (!spans_.empty() && begin >= spans_.back().begin && begin <= spans_.back().end) {
    spans_.back().end = std::max(spans_.back().end, end);
  } else {
    spans_.push_back(Span{begin, end});
  }
}

void TimeSpans::add(const TimeSpans& all) {
  spans_.insert(spans_.end(), all.spans_.begin(), all.spans_.end());
}

double TimeSpans::total() const {
  std::vector<Span> sorted = spans_;
  std::sort(sorted.begin(), sorted.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double total = 0;
  double until = sorted.empty() ? 0 : sorted.front().begin;
  for (const Span& span : sorted) {
    total += std::max(0.0, span.end - std::max(until, span.begin));
    until = std::max(until, span.end);
  }
  return total;
}

}  // namespace hvd::launch
