#include "launcher/page/job_curves.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "launcher/page/page_text.h"
#include "launcher/report/quantities.h"

namespace hvd::launch {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kMostPoints = 240;
constexpr std::size_t kFewestPoints = 24;
constexpr std::size_t kMostValues = 60'000;  // of all curves together, so that the page of 1,000 nodes stays small
constexpr std::size_t kCurvesOfNode = 3;
constexpr std::size_t kFewestCompared = 3;  // hosts; of two, nobody can say which one is odd

float mean(float a, float b) {
  return std::isnan(a) ? b : std::isnan(b) ? a : (a + b) / 2;
}

void halve_curve(Curve& curve) {
  const std::size_t half = curve.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    curve[i] = mean(curve[2 * i], curve[2 * i + 1]);
  }
  curve.resize(half);
}

std::vector<OperationRow> sum_of(std::vector<OperationRow> rows, const std::vector<OperationRow>& before) {
  for (const OperationRow& earlier : before) {
    const auto same = std::find_if(rows.begin(), rows.end(),
                                   [&earlier](const OperationRow& row) { return row.kind == earlier.kind; });
    if (same == rows.end()) {
      rows.push_back(earlier);
      continue;
    }
    same->operations += earlier.operations;
    same->bytes += earlier.bytes;
    same->lasted += earlier.lasted;
    same->waited += earlier.waited;
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const OperationRow& a, const OperationRow& b) { return a.lasted > b.lasted; });
  return rows;
}

double used_memory(const NodeShown& node) {
  return static_cast<double>(node.memory_total - std::min(node.memory_free, node.memory_total));
}

double gpu_memory(const NodeShown& node) {
  double memory = 0;
  for (const GpuSample& gpu : node.gpus) {
    memory += static_cast<double>(gpu.memory_bytes);
  }
  return memory;
}

void take_most(NodeCurves& node, const NodeShown& shown) {
  if (shown.is_sampled && !shown.is_away) {
    node.most_cores = std::max(node.most_cores, shown.cores);
    node.most_memory = std::max(node.most_memory, used_memory(shown));
    node.most_gpu_memory = std::max(node.most_gpu_memory, gpu_memory(shown));
  }
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What is compared between hosts: by how much a mean must differ from the median, at least, to be named.
struct Measure {
  const char* words;
  Curve NodeCurves::* curve;
  double share;  // of the median
  double least;  // in the curve's own unit
  std::function<std::string(double)> text;
};

const std::vector<Measure>& measures() {
  static const std::vector<Measure> all = {
      {"uses", &NodeCurves::cores, 0.3, 0.5, [](double n) { return fixed_text(n, 1) + " cores"; }},
      {"uses", &NodeCurves::memory, 0.5, 2e9,
       [](double n) { return bytes_text(static_cast<std::uint64_t>(n)) + " of memory"; }},
      {"keeps its GPUs busy for", &NodeCurves::gpu_busy, 0.2, 15, [](double n) { return fixed_text(n, 0) + " %"; }},
      {"uses", &NodeCurves::gpu_memory, 0.3, 2e9,
       [](double n) { return bytes_text(static_cast<std::uint64_t>(n)) + " of its GPUs' memory"; }},
  };
  return all;
}

}  // namespace

double mean_of(const Curve& curve) {
  double sum = 0;
  std::size_t count = 0;
  for (const float value : curve) {
    if (!std::isnan(value)) {
      sum += static_cast<double>(value);
      ++count;
    }
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

std::size_t JobCurves::most_points() const {
  return std::clamp(kMostValues / (kCurvesOfNode * std::max<std::size_t>(nodes_.size(), 1)), kFewestPoints,
                    kMostPoints);
}

void JobCurves::take(double at, const JobPicture& picture) {
  latest_ = std::max(latest_, at);
  const bool has_told =
      std::any_of(picture.nodes.begin(), picture.nodes.end(), [](const NodeShown& node) { return node.is_sampled; });
  double bytes_per_s = 0;
  totals_.lines = before_.lines;
  totals_.output_bytes = before_.output_bytes;
  for (const RankShown& rank : picture.ranks) {
    totals_.lines += rank.lines;
    totals_.output_bytes += rank.output_bytes;
    totals_.operations = std::max(totals_.operations, before_.operations + rank.used.runtime.operations);
    totals_.operation_bytes = std::max(totals_.operation_bytes, before_.operation_bytes + rank.used.runtime.bytes);
    bytes_per_s = std::max(bytes_per_s, rank.bytes_per_s);
  }
  if (std::vector<OperationRow> rows = operation_table(picture); !rows.empty()) {
    totals_.operation_rows = sum_of(std::move(rows), before_.operation_rows);
  }
  if (!has_told) {
    return;
  }
  most_collective_bytes_ = std::max(most_collective_bytes_, bytes_per_s);
  nodes_.resize(std::max(nodes_.size(), picture.nodes.size()));
  for (std::size_t i = 0; i < picture.nodes.size(); ++i) {
    take_most(nodes_[i], picture.nodes[i]);
  }
  if (!times_.empty() && at < times_.back() + std::max(step_, 0.001)) {
    return;
  }
  const double seconds = at - (times_.empty() ? 0 : times_.back());
  const double lines_per_s =
      seconds > 0 && totals_.lines >= lines_before_ ? static_cast<double>(totals_.lines - lines_before_) / seconds : 0;
  most_printed_lines_ = std::max(most_printed_lines_, lines_per_s);
  printed_lines_.push_back(static_cast<float>(lines_per_s));
  lines_before_ = totals_.lines;
  collective_bytes_.push_back(times_.empty() ? kUnknown : static_cast<float>(bytes_per_s));
  times_.push_back(at);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    take_node(nodes_[i], i < picture.nodes.size() ? picture.nodes[i] : NodeShown());
  }
  if (times_.size() > most_points()) {
    halve();
  }
}

void JobCurves::take_node(NodeCurves& node, const NodeShown& shown) const {
  const std::size_t before = times_.size() - 1;
  const bool is_known = shown.is_sampled && !shown.is_away;
  node.host = shown.name.empty() ? node.host : shown.name;
  node.memory_total = std::max(node.memory_total, shown.memory_total);
  const auto add = [before](Curve& curve, float value) {
    curve.resize(before, kUnknown);  // a host that has joined, or a GPU that was seen late
    curve.push_back(value);
  };
  // A rate needs two samples, so the first one has none.
  const bool has_rate = std::any_of(node.memory.begin(), node.memory.end(), [](float m) { return !std::isnan(m); });
  add(node.cores, is_known && has_rate ? static_cast<float>(shown.cores) : kUnknown);
  add(node.memory, is_known ? static_cast<float>(used_memory(shown)) : kUnknown);
  if (!shown.gpus.empty() || !node.gpu_busy.empty()) {
    float busy = 0;
    for (const GpuSample& gpu : shown.gpus) {
      busy += static_cast<float>(gpu.busy_percent) / static_cast<float>(shown.gpus.size());
    }
    const bool has_gpus = is_known && !shown.gpus.empty();
    add(node.gpu_busy, has_gpus ? busy : kUnknown);
    add(node.gpu_memory, has_gpus ? static_cast<float>(gpu_memory(shown)) : kUnknown);
  }
}

// Two neighbours become one point, so that the job may last twice as long.
void JobCurves::halve() {
  if (times_.size() % 2 != 0) {  // the last one stays for itself, as its own neighbour
    times_.push_back(times_.back());
    for (Curve* curve : {&collective_bytes_, &printed_lines_}) {
      curve->push_back(curve->back());
    }
    for (NodeCurves& node : nodes_) {
      for (Curve* curve : {&node.cores, &node.memory, &node.gpu_busy, &node.gpu_memory}) {
        if (!curve->empty()) {
          curve->push_back(curve->back());
        }
      }
    }
  }
  const std::size_t half = times_.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    times_[i] = times_[2 * i + 1];
  }
  times_.resize(half);
  halve_curve(collective_bytes_);
  halve_curve(printed_lines_);
  for (NodeCurves& node : nodes_) {
    for (Curve* curve : {&node.cores, &node.memory, &node.gpu_busy, &node.gpu_memory}) {
      halve_curve(*curve);
    }
  }
  step_ = half > 1 ? (times_.back() - times_.front()) / static_cast<double>(half - 1) : step_;
}

std::vector<std::string> JobCurves::outliers() const {
  std::vector<std::string> found;
  for (const Measure& measure : measures()) {
    std::vector<double> means;
    for (const NodeCurves& node : nodes_) {
      if (const double value = mean_of(node.*measure.curve); !std::isnan(value)) {
        means.push_back(value);
      }
    }
    if (means.size() < kFewestCompared) {
      continue;
    }
    const double middle = median_of(means);
    for (const NodeCurves& node : nodes_) {
      const double value = mean_of(node.*measure.curve);
      if (!std::isnan(value) && std::abs(value - middle) > std::max(measure.least, measure.share * middle)) {
        found.push_back(node.host + " " + measure.words + " " + measure.text(value) + ", half of the hosts " +
                        (value > middle ? "at most " : "at least ") + measure.text(middle));
      }
    }
  }
  return found;
}

}  // namespace hvd::launch
