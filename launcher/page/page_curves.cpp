#include "launcher/page/page_curves.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "launcher/page/page_text.h"
#include "launcher/report/quantities.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr double kCurveWidth = 240;  // of a drawing, in its own units
constexpr double kHeight = 40;

std::string amount(double bytes) {
  return bytes_text(static_cast<std::uint64_t>(bytes));
}

bool is_worth_drawing(const Curve& curve) {
  return std::count_if(curve.begin(), curve.end(), [](float value) { return !std::isnan(value); }) >= 2;
}

class Drawing {
 public:
  Drawing(const std::vector<double>& times, double length) : times_(times), length_(length) {}

  // Returns one small drawing with its name and its figures; `most` is the top of its scale. Where nothing is known
  // the line has a gap.
  [[nodiscard]] std::string of(const std::string& name, const std::string& figures, const Curve& curve,
                               double most) const {
    if (!is_worth_drawing(curve)) {
      return "";
    }
    std::string path;
    bool is_down = false;
    for (std::size_t i = 0; i < curve.size() && i < times_.size(); ++i) {
      if (std::isnan(curve[i])) {
        is_down = false;
        continue;
      }
      const double x = std::clamp(times_[i] / length_, 0.0, 1.0) * kCurveWidth;
      const double y = kHeight - 1 - std::clamp(static_cast<double>(curve[i]) / most, 0.0, 1.0) * (kHeight - 2);
      path += (is_down ? "L" : "M") + fixed_text(x, 0) + " " + fixed_text(y, 0);
      is_down = true;
    }
    return "<figure><figcaption>" + name + " <span class=\"dim\">" + figures +
           "</span></figcaption><svg viewBox=\"0 0 240 40\" height=\"40\" preserveAspectRatio=\"none\" role=\"img\">"
           "<title>" +
           name + ": " + figures + "</title><path class=\"curve\" d=\"" + path + "\"/></svg></figure>\n";
  }

 private:
  const std::vector<double>& times_;
  const double length_;
};

std::string of_node(const NodeCurves& node, const Drawing& drawing) {
  std::string figures;
  figures += drawing.of("CPU", fixed_text(mean_of(node.cores), 1) + " cores, at most " + fixed_text(node.most_cores, 1),
                        node.cores, std::max(1.0, std::ceil(node.most_cores)));
  const auto total = static_cast<double>(std::max<std::uint64_t>(node.memory_total, 1));
  figures += drawing.of("Memory", "at most " + amount(node.most_memory) + " of " + amount(total), node.memory, total);
  if (is_worth_drawing(node.gpu_busy)) {
    constexpr double kPercent = 100;
    figures += drawing.of("GPUs", fixed_text(mean_of(node.gpu_busy), 0) + " % busy", node.gpu_busy, kPercent);
    figures += drawing.of("GPU memory", "at most " + amount(node.most_gpu_memory), node.gpu_memory,
                          std::max(1.0, node.most_gpu_memory));
  }
  return figures.empty() ? ""
                         : "<div class=\"node\"><strong>" + escaped(node.host) + "</strong><div class=\"curves\">\n" +
                               figures + "</div></div>\n";
}

// "12.3 s", and as a part of `all`.
std::string share_text(double seconds, double all) {
  constexpr double kPercent = 100;
  return duration_text(seconds) + (all > 0 ? ", " + fixed_text(kPercent * seconds / all, 0) + " %" : "");
}

std::string of_operations(const std::vector<OperationRow>& rows, double length) {
  if (rows.empty()) {
    return "";
  }
  std::string text =
      "<div class=\"scroll\"><table>\n<tr><th>Collectives</th><th class=\"number\">Number</th><th "
      "class=\"number\">Bytes"
      "</th><th class=\"number\">Time, and of the job</th><th class=\"number\">Waited for slower ranks, of it</th>"
      "<th class=\"number\">Slowest rank</th></tr>\n";
  for (const OperationRow& row : rows) {
    text += "<tr><td>" + escaped(row.kind) + "</td>";
    for (const std::string& cell :
         {std::to_string(row.operations), amount(static_cast<double>(row.bytes)), share_text(row.lasted, length),
          share_text(row.waited, row.lasted), row.slowest < 0 ? "" : std::to_string(row.slowest)}) {
      text += "<td class=\"number\">" + cell + "</td>";
    }
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

}  // namespace

std::string page_curves(const JobCurves& curves, double length) {
  const Drawing drawing(curves.times(), std::max(length, curves.times().empty() ? 0.001 : curves.times().back()));
  std::string job;
  const JobTotals& totals = curves.totals();
  if (totals.operations > 0) {
    const double most = curves.most_collective_bytes();
    job += drawing.of("Collectives",
                      std::to_string(totals.operations) + " of " + amount(static_cast<double>(totals.operation_bytes)) +
                          " in all on the busiest rank, at most " + amount(most) + "/s",
                      curves.collective_bytes(), std::max(1.0, most));
  }
  if (totals.lines > 0) {
    const double most = curves.most_printed_lines();
    const std::string per_second = fixed_text(most, 0);
    job += drawing.of("Output",
                      counted(totals.lines, "line") + ", " + amount(static_cast<double>(totals.output_bytes)) +
                          " of all ranks, at most " + per_second + (per_second == "1" ? " line/s" : " lines/s"),
                      curves.printed_lines(), std::max(1.0, most));
  }
  std::string nodes;
  for (const NodeCurves& node : curves.nodes()) {
    nodes += of_node(node, drawing);
  }
  const std::string operations = of_operations(totals.operation_rows, length);
  if (job.empty() && nodes.empty() && operations.empty()) {
    return "";
  }
  std::string odd;
  for (const std::string& line : curves.outliers()) {
    odd += "<p class=\"warning\">" + escaped(line) + "</p>\n";
  }
  return "<h2>What was used</h2>\n" + odd + (job.empty() ? "" : "<div class=\"curves\">\n" + job + "</div>\n") +
         operations + nodes;
}

}  // namespace hvd::launch
