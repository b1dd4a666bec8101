// TimeSpans adds up times of which several may overlap, as those of operations do that are under way together: a moment
// counts once. Pure. Microseconds.
#pragma once

#include <vector>

namespace hvd::launch {

class TimeSpans {
 public:
  // From `begin` until `end`; nothing if that is earlier.
  void add(double begin, double end);
  void add(const TimeSpans& all);
  // Returns how long at least one of them lasted.
  [[nodiscard]] double total() const;

 private:
  struct Span {
    double begin = 0;
    double end = 0;
  };
  std::vector<Span> spans_;
};

}  // namespace hvd::launch
