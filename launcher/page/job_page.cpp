#include "launcher/page/job_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/page/page_curves.h"
#include "launcher/page/page_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2126;--dim:#5a6570;--line:#d7dde3;--card:#f5f7f9;--ok:#2f6f9f;--run:#7fb2d6;
--bad:#c02a1d;--after:#d9a066;--lost:#8a8f98;--warn:#8a5a00}
@media(prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--dim:#9aa5b1;--line:#333b44;--card:#1d2329;--ok:#5b9bd0;
--run:#35617f;--bad:#f0705f;--after:#a8763e;--lost:#7b828c;--warn:#e0b050}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:64rem;padding:1rem;background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.25rem;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.6rem 0 .5rem}
code,pre{font:13px/1.4 ui-monospace,monospace}
pre{margin:.5rem 0 0;padding:.6rem;overflow-x:auto;background:var(--bg);border:1px solid var(--line);border-radius:4px}
.dim{color:var(--dim)}
.badge{display:inline-block;padding:.1rem .6rem;border-radius:1rem;color:#fff;background:var(--ok);font-weight:600}
.badge.failed{background:var(--bad)}.badge.running{background:var(--lost)}
.failure{margin-top:1rem;padding:.8rem;border-left:5px solid var(--bad);background:var(--card);border-radius:4px}
.failure p{margin:.2rem 0;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.number,th.number{text-align:right;white-space:nowrap}
td.text{overflow-wrap:anywhere}
.warning{color:var(--warn)}.bad{color:var(--bad)}
.axis{position:relative;height:1.3rem;margin-left:3.2rem;border-bottom:1px solid var(--line);font-size:12px;color:var(--dim)}
.axis span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.axis span:first-child{transform:none}
.node{margin:.6rem 0}
.rows{display:flex}
.labels{width:3.2rem;flex:none;font-size:12px;color:var(--dim)}
.labels span{display:block;overflow:hidden}
.labels .first{color:var(--bad);font-weight:700}
svg{flex:1;width:100%;min-width:0;background:var(--card);display:block}
.b-ok{fill:var(--ok)}.b-run{fill:var(--run)}.b-failed,.b-first{fill:var(--bad)}.b-after{fill:var(--after)}.b-lost{fill:var(--lost)}
.away{fill:var(--warn);opacity:.35}
.moment{stroke:var(--bad);stroke-width:1;vector-effect:non-scaling-stroke}
.generation{stroke:var(--dim);stroke-width:1;stroke-dasharray:3 3;vector-effect:non-scaling-stroke}
.curves{display:flex;flex-wrap:wrap;gap:.3rem 1rem}
figure{margin:.3rem 0;flex:1 1 15rem;min-width:12rem}
figcaption{font-size:13px}
.curve{fill:none;stroke:var(--ok);stroke-width:1.5;vector-effect:non-scaling-stroke}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:13px;color:var(--dim)}
.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.3rem;vertical-align:-1px}
)";

// Beyond so many ranks, rows are too low for a name beside them.
constexpr std::size_t kMostNamedRows = 64;
constexpr std::size_t kMostRowsOfHalfHeight = 512;
constexpr double kBarsWidth = 1000;  // of a drawing, in its own units

// Returns a step at which an axis of this length has at most six names.
double tick_step(double length) {
  for (const double step : {0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
                            3600.0, 7200.0, 21600.0, 43200.0}) {
    if (length / step <= 6) {
      return step;
    }
  }
  return std::ceil(length / 6 / 86400) * 86400;
}

// "0-3, 8": ranks by rising number.
std::string ranges_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    add_to_list(text, std::to_string(numbers[first]) + (last > first ? "-" + std::to_string(numbers[last]) : ""));
    first = last + 1;
  }
  return text;
}

// The way of a process as a class of the style and in words.
struct Look {
  std::string_view name;
  std::string words;
};

class PageWriter {
 public:
  PageWriter(const JobHistory& history, const JobCurves& curves)
      : history_(history),
        curves_(curves),
        latest_(history.end() ? history.latest() : std::max(history.latest(), curves.latest())),
        length_(std::max(latest_, 0.001)),
        ranks_(history.nodes().size()) {
    for (const HistoryRank& rank : history_.ranks()) {
      if (static_cast<std::size_t>(rank.node) < ranks_.size()) {
        ranks_[static_cast<std::size_t>(rank.node)].push_back(rank.rank);
      }
    }
    const std::size_t count = history_.ranks().size();
    row_ = count <= kMostNamedRows ? 18 : count <= kMostRowsOfHalfHeight ? 8 : 4;
  }

  std::string page() {
    write_head();
    write_failure();
    write_ranks();
    write_nodes();
    out_ += page_curves(curves_, length_);
    write_events();
    write_settings();
    out_ += "</body>\n</html>\n";
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string command() const {
    std::string words;
    for (const std::string& word : history_.argv()) {
      add_to_list(words, word, " ");
    }
    return words;
  }

  [[nodiscard]] std::string verdict() const {
    const auto& end = history_.end();
    return !end ? "Running" : end->exit_code == 0 ? "Succeeded" : "Failed with code " + std::to_string(end->exit_code);
  }

  void write_head() {
    const auto& end = history_.end();
    const std::string title = escaped(verdict() + ": " + command());
    out_ =
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>" +
        title + "</title>\n<style>" + std::string(kStyle) + "</style>\n</head>\n<body>\n";
    out_ += std::string("<span class=\"badge ") +
            (!end                  ? "running"
             : end->exit_code == 0 ? "done"
                                   : "failed") +
            "\">" + verdict() + "</span>\n<h1><code>" + escaped(command()) + "</code></h1>\n<p class=\"dim\">" +
            counted(history_.ranks().size(), "rank") + " on " + counted(hosts(), "host") + ", " +
            duration_text(latest_) + (end ? "" : " so far") + ", began " + escaped(history_.began());
    if (end) {
      std::string counts = std::to_string(end->succeeded) + " succeeded";
      for (const auto& [count, what] :
           {std::pair(end->failed, " failed"), std::pair(end->lost, " lost"),
            std::pair(end->not_started, " not started"), std::pair(end->released, " released")}) {
        if (count > 0) {
          add_to_list(counts, std::to_string(count) + what);
        }
      }
      out_ += !end->has_counts ? "" : ". Ranks: " + counts;
      out_ += end->is_output_kept ? "" : ". <span class=\"bad\">Not all of their output could be kept</span>";
    }
    out_ += ".</p>\n";
  }

  // Under an engine each rank has an agent of its own, so that several nodes are one host.
  [[nodiscard]] std::size_t hosts() const {
    std::vector<std::string_view> names;
    for (const HistoryNode& node : history_.nodes()) {
      names.emplace_back(node.host);
    }
    std::sort(names.begin(), names.end());
    return static_cast<std::size_t>(std::unique(names.begin(), names.end()) - names.begin());
  }

  void write_failure() {
    const auto& failure = history_.failure();
    if (!failure) {
      return;
    }
    out_ += "<section class=\"failure\">\n<h2 style=\"margin-top:0\">The first failure, " + duration_text(failure->at) +
            " after the start</h2>\n";
    for (const std::string& cause : failure->causes) {
      out_ += "<p><strong>" + escaped(cause) + "</strong></p>\n";
    }
    if (!failure->exception.empty()) {
      out_ += "<p><code>" + escaped(failure->exception) + "</code></p>\n<p class=\"dim\">" + escaped(failure->frame) +
              "</p>\n";
    }
    if (!failure->last_errors.empty()) {
      out_ += "<p class=\"dim\">The last lines of its standard error:</p>\n<pre>";
      for (const std::string& line : failure->last_errors) {
        out_ += escaped(line) + "\n";
      }
      out_ += "</pre>\n";
    }
    if (!failure->kept_in.empty()) {
      out_ += "<p class=\"dim\">All that it printed is in <code>" + escaped(failure->kept_in) + "</code></p>\n";
    }
    out_ += "</section>\n";
  }

  [[nodiscard]] double x_of(double seconds) const { return std::clamp(seconds / length_, 0.0, 1.0) * kBarsWidth; }
  [[nodiscard]] bool has_named_rows() const { return history_.ranks().size() <= kMostNamedRows; }
  [[nodiscard]] bool is_first_failure(int rank) const { return history_.failure() && history_.failure()->rank == rank; }

  [[nodiscard]] Look look_of(const HistoryRank& rank, const HistoryProcess& process) const {
    switch (process.end) {
      case HistoryProcess::End::kRunning:
        return {"run", "is running"};
      case HistoryProcess::End::kSucceeded:
        return {"ok", "succeeded"};
      case HistoryProcess::End::kLost:
        return {"lost", "was lost with its host"};
      case HistoryProcess::End::kFailed:
        break;
    }
    if (is_first_failure(rank.rank) && &process == &rank.processes.back()) {
      return {"first", process.how + ": the first failure"};
    }
    const auto& failure = history_.failure();
    const bool is_after = failure && process.time.to && *process.time.to >= failure->at;
    return {is_after ? "after" : "failed", process.how + (is_after ? " after the first failure" : "")};
  }

  void write_ranks() {
    out_ += "<h2>Ranks</h2>\n<div class=\"key\">";
    for (const auto& [color, words] :
         {std::pair("ok", "succeeded"), std::pair("bad", "failed"), std::pair("after", "ended after the first failure"),
          std::pair("lost", "lost"), std::pair("run", "running"), std::pair("warn", "host not reached")}) {
      out_ += std::string("<span><i style=\"background:var(--") + color + ")\"></i>" + words + "</span>";
    }
    out_ += "</div>\n<div class=\"axis\">";
    const double step = tick_step(length_);
    for (int tick = 0; tick * step <= length_ * 0.97; ++tick) {
      out_ +=
          "<span style=\"left:" + fixed_text(x_of(tick * step) / 10, 1) + "%\">" + tick_text(tick * step) + "</span>";
    }
    out_ += "</div>\n";
    for (std::size_t node = 0; node < ranks_.size(); ++node) {
      if (!ranks_[node].empty()) {
        write_ranks_of(node);
      }
    }
  }

  void write_ranks_of(std::size_t node) {
    const HistoryNode& host = history_.nodes()[node];
    const std::vector<int>& ranks = ranks_[node];
    const double height = static_cast<double>(row_) * static_cast<double>(ranks.size());
    out_ += "<div class=\"node\"><div><strong>" + escaped(host.host) + "</strong> <span class=\"dim\">rank" +
            (ranks.size() > 1 ? "s " : " ") + ranges_of(ranks) +
            (host.is_lost ? "</span> <span class=\"bad\">lost" : "") +
            "</span></div>\n<div class=\"rows\"><div class=\"labels\">";
    for (const int rank : has_named_rows() ? ranks : std::vector<int>()) {
      out_ += "<span style=\"height:" + std::to_string(row_) + "px\"" +
              (is_first_failure(rank) ? " class=\"first\">&#9654; " : ">") + std::to_string(rank) + "</span>";
    }
    out_ += "</div>\n<svg viewBox=\"0 0 1000 " + fixed_text(height, 0) + "\" height=\"" + fixed_text(height, 0) +
            "\" preserveAspectRatio=\"none\" role=\"img\">\n";
    for (std::size_t row = 0; row < ranks.size(); ++row) {
      write_bars(history_.ranks()[static_cast<std::size_t>(ranks[row])], static_cast<double>(row) * row_);
    }
    for (const HistorySpan& away : host.away) {
      const double to = away.to.value_or(latest_);
      out_ += rect("away", away.from, to, 0, height) + "<title>not reached for " + duration_text(to - away.from) +
              "</title></rect>\n";
    }
    for (const HistoryGeneration& generation : history_.generations()) {
      out_ += line("generation", generation.at, height) + "<title>generation " + std::to_string(generation.number) +
              "</title></line>\n";
    }
    if (history_.failure()) {
      out_ += line("moment", history_.failure()->at, height) + "<title>the first failure</title></line>\n";
    }
    out_ += "</svg></div></div>\n";
  }

  void write_bars(const HistoryRank& rank, double top) {
    for (const HistoryProcess& process : rank.processes) {
      const Look look = look_of(rank, process);
      const double to = process.time.to.value_or(latest_);
      out_ += rect("b-" + std::string(look.name), process.time.from, to, top + 1, row_ - 2) + "<title>rank " +
              std::to_string(rank.rank) + " " + escaped(look.words) + ", " + duration_text(to - process.time.from) +
              "</title></rect>\n";
    }
  }

  // Each is without its end, for a title in it.
  [[nodiscard]] std::string rect(const std::string& look, double from, double to, double top, double height) const {
    // What is too short to be seen is drawn as wide as a line.
    const double width = std::max(x_of(to) - x_of(from), 1.5);
    return "<rect class=\"" + look + "\" x=\"" + fixed_text(std::min(x_of(from), kBarsWidth - width), 1) + "\" y=\"" +
           fixed_text(top, 0) + "\" width=\"" + fixed_text(width, 1) + "\" height=\"" + fixed_text(height, 0) + "\">";
  }
  [[nodiscard]] std::string line(const std::string& look, double at, double height) const {
    const std::string x = fixed_text(x_of(at), 1);
    return "<line class=\"" + look + "\" x1=\"" + x + "\" x2=\"" + x + "\" y1=\"0\" y2=\"" + fixed_text(height, 0) +
           "\">";
  }

  void write_nodes() {
    out_ +=
        "<h2>Hosts</h2>\n<div class=\"scroll\"><table>\n<tr><th>Host</th><th>Ranks</th><th>Reached by</th>"
        "<th class=\"number\">Answered after</th><th class=\"number\">Cores</th><th class=\"number\">GPUs</th>"
        "<th class=\"number\">Breaks</th></tr>\n";
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      const HistoryNode& node = history_.nodes()[number];
      const bool has_answered = node.ready.has_value();
      out_ += "<tr><td>" + escaped(node.host) + (node.is_lost ? " <span class=\"bad\">lost</span>" : "") + "</td><td>" +
              ranges_of(ranks_[number]) + "</td><td>" + escaped(node.transport) + "</td><td class=\"number\">" +
              (has_answered                     ? duration_text(*node.ready)
               : node.is_lost || history_.end() ? "never"
                                                : "not yet") +
              "</td><td class=\"number\">" + (has_answered ? std::to_string(node.cores) : "") +
              "</td><td class=\"number\">" + (has_answered ? std::to_string(node.gpus) : "") +
              "</td><td class=\"number\">" + std::to_string(node.away.size()) + "</td></tr>\n";
    }
    out_ += "</table></div>\n";
  }

  void write_events() {
    const auto& events = history_.events();
    if (events.empty()) {
      return;
    }
    out_ += "<h2>What happened</h2>\n<div class=\"scroll\"><table>\n";
    for (const HistoryEvent& event : events) {
      const char* const tone = event.tone == HistoryEvent::Tone::kBad       ? " bad"
                               : event.tone == HistoryEvent::Tone::kWarning ? " warning"
                                                                            : "";
      out_ += "<tr><td class=\"number\">" + duration_text(event.at) + "</td><td class=\"text" + tone + "\">" +
              escaped(event.text) + "</td></tr>\n";
    }
    out_ += "</table></div>\n";
    if (history_.count_of_events() > events.size()) {
      out_ += "<p class=\"dim\">and " + std::to_string(history_.count_of_events() - events.size()) + " more</p>\n";
    }
  }

  void write_settings() {
    out_ += "<h2>Settings</h2>\n<div class=\"scroll\"><table>\n";
    for (const auto& [name, value] : {std::pair("Command", command()), std::pair("Folder", history_.cwd()),
                                      std::pair("Job", history_.job()), std::pair("hvdrun", history_.version())}) {
      out_ +=
          std::string("<tr><td>") + name + "</td><td class=\"text\"><code>" + escaped(value) + "</code></td></tr>\n";
    }
    out_ += "</table></div>\n";
  }

  const JobHistory& history_;
  const JobCurves& curves_;
  const double latest_;                  // moment of the job that is known, in seconds from its beginning
  const double length_;                  // of the job as it is drawn: never 0
  std::vector<std::vector<int>> ranks_;  // of each node
  int row_ = 0;                          // the height of a rank's row, in pixels
  std::string out_;
};

}  // namespace

std::string job_page(const JobHistory& history, const JobCurves& curves) {
  return PageWriter(history, curves).page();
}

}  // namespace hvd::launch
