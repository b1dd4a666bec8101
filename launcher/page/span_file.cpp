#include "launcher/page/span_file.h"

#include <random>
#include <utility>

#include "runtime/base/replace_file.h"

namespace hvd::launch {
namespace {

SpanPlace with_trace(SpanPlace place) {
  constexpr std::size_t kDigits = 32;
  std::random_device random;
  while (place.trace.size() < kDigits) {
    place.trace += "0123456789abcdef"[random() & 15U];
  }
  return place;
}

}  // namespace

SpanFile::SpanFile(std::string path, SpanPlace place) : path_(std::move(path)), place_(with_trace(std::move(place))) {}

void SpanFile::begin(std::string name) {
  steps_.push_back({std::move(name), JobHistory()});
}

void SpanFile::add(std::string_view event) {
  JobHistory& history = steps_.back().history;
  const bool had_ended = history.end().has_value();
  history.add(event);
  if (had_ended || !history.end() || !failure_.empty()) {
    return;
  }
  if (const auto written = replace_file(path_, job_spans(steps_, place_)); !written.ok()) {
    failure_ = "--spans: " + written.error().message() + "; the job goes on without them";
  }
}

std::string SpanFile::failure() {
  return has_told_ || failure_.empty() ? "" : (has_told_ = true, failure_);
}

}  // namespace hvd::launch
