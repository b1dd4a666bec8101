#include "launcher/samples/metrics_text.h"

#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "launcher/samples/operation_table.h"

namespace hvd::launch {
namespace {

std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') {
      text += '\\';
    }
    text += c;
  }
  return text;
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto [end, failed] = std::to_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() ? std::string(text.data(), end) : "NaN";
}

class MetricsWriter {
 public:
  MetricsWriter(const JobPicture& view, MetricsForm form) : view_(view), form_(form) {}

  using OfRank = std::function<std::optional<double>(const RankShown&)>;
  using OfNode = std::function<std::optional<double>(const NodeShown&)>;

  void job(const char* name, const char* help, double value) {
    begin(name, "gauge", help);
    line(name, labels(), value);
  }
  // A metric of which nothing is known is left out, with its head.
  void ranks(const char* name, const char* type, const char* help, const OfRank& of) {
    begin(name, type, help);
    for (const RankShown& rank : view_.ranks) {
      if (const std::optional<double> value = of(rank)) {
        line(name, rank_labels(rank), *value);
      }
    }
  }
  using OfKind = std::function<double(const OperationSample&)>;
  void kinds(const char* name, const char* help, const OfKind& of) {
    begin(name, "counter", help);
    for (const RankShown& rank : view_.ranks) {
      for (const OperationSample& counts : rank.used.runtime.kinds) {
        line(name, rank_labels(rank) + ",operation=\"" + escaped(counts.kind) + "\"", of(counts));
      }
    }
  }
  void nodes(const char* name, const char* type, const char* help, const OfNode& of) {
    begin(name, type, help);
    for (const NodeShown& node : view_.nodes) {
      if (const std::optional<double> value = of(node)) {
        line(name, node_labels(node), *value);
      }
    }
  }
  void gpus(const char* name, const char* help, const std::function<double(const GpuSample&)>& of) {
    begin(name, "gauge", help);
    for (const NodeShown& node : view_.nodes) {
      for (const GpuSample& gpu : node.gpus) {
        line(name, node_labels(node) + ",gpu=\"" + std::to_string(gpu.index) + "\"", of(gpu));
      }
    }
  }
  void states() {
    constexpr const char* kName = "hvdrun_ranks";
    begin(kName, "gauge", "Ranks of the job by their state.");
    for (const char* state : {"pending", "running", "ended", "failed", "lost"}) {
      double count = 0;
      for (const RankShown& rank : view_.ranks) {
        count += rank.state == state ? 1 : 0;
      }
      line(kName, labels() + ",state=\"" + state + "\"", count);
    }
  }
  std::string finish() && {
    if (form_ == MetricsForm::kOpenMetrics) {
      text_ += "# EOF\n";
    }
    return std::move(text_);
  }

 private:
  // Makes the head, which stands before the first line.
  void begin(std::string name, const char* type, const char* help) {
    if (constexpr std::string_view kTotal = "_total"; form_ == MetricsForm::kOpenMetrics && name.ends_with(kTotal)) {
      name.resize(name.size() - kTotal.size());
    }
    head_ = "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void line(const char* name, const std::string& labels, double value) {
    text_.append(std::exchange(head_, ""))
        .append(name)
        .append("{")
        .append(labels)
        .append("} ")
        .append(number_text(value))
        .append("\n");
  }
  [[nodiscard]] std::string labels() const { return "job=\"" + escaped(view_.id) + "\""; }
  [[nodiscard]] std::string node_labels(const NodeShown& node) const {
    return labels() + ",node=\"" + escaped(node.name) + "\"";
  }
  [[nodiscard]] std::string rank_labels(const RankShown& rank) const {
    return node_labels(view_.nodes[static_cast<std::size_t>(rank.node)]) + ",rank=\"" + std::to_string(rank.rank) +
           "\"";
  }

  const JobPicture& view_;
  const MetricsForm form_;
  std::string head_;  // of the metric whose lines come next; empty: it is written
  std::string text_;
};

using Maybe = std::optional<double>;

Maybe if_sampled(const RankShown& rank, double value) {
  return rank.is_sampled ? Maybe(value) : std::nullopt;
}

Maybe if_runs_us(const RankShown& rank, double value) {
  return rank.is_sampled && rank.used.has_runtime ? Maybe(value) : std::nullopt;
}

constexpr double kMsPerSecond = 1000;

double number(std::uint64_t count) {
  return static_cast<double>(count);
}

void write_ranks(MetricsWriter& out) {
  out.ranks("hvdrun_rank_restarts_total", "counter", "Times that the rank was started again.",
            [](const RankShown& r) { return Maybe(r.restarts); });
  out.ranks("hvdrun_rank_cpu_seconds_total", "counter",
            "Processor time that the rank and the processes that it has started have used.",
            [](const RankShown& r) { return if_sampled(r, number(r.used.cpu_ms) / kMsPerSecond); });
  out.ranks("hvdrun_rank_memory_bytes", "gauge", "Resident memory of the rank and the processes that it has started.",
            [](const RankShown& r) { return if_sampled(r, number(r.used.memory_bytes)); });
  out.ranks("hvdrun_rank_processes", "gauge", "Processes of the rank.",
            [](const RankShown& r) { return if_sampled(r, r.used.processes); });
  out.ranks("hvdrun_rank_output_lines_total", "counter", "Lines that the rank has printed.",
            [](const RankShown& r) { return Maybe(number(r.lines)); });
  out.ranks("hvdrun_rank_output_bytes_total", "counter", "Bytes that the rank has printed.",
            [](const RankShown& r) { return Maybe(number(r.output_bytes)); });
  out.kinds("hvdrun_rank_collectives_total", "Collective operations that the rank has finished.",
            [](const OperationSample& o) { return number(o.operations); });
  out.kinds("hvdrun_rank_collective_bytes_total", "Bytes of the inputs of these operations.",
            [](const OperationSample& o) { return number(o.bytes); });
  out.kinds("hvdrun_rank_collective_seconds_total",
            "Time from when the rank had asked for operations until they ended.",
            [](const OperationSample& o) { return seconds_of_us(o.lasted_us); });
  out.kinds("hvdrun_rank_collective_wait_seconds_total",
            "Of this time, until the other ranks had asked too; not known of the quickest operations.",
            [](const OperationSample& o) { return seconds_of_us(o.waited_us); });
  out.ranks("hvdrun_rank_collective_age_seconds", "gauge",
            "How long the operation that the rank is in has lasted; 0 where it is in none.",
            [](const RankShown& r) { return if_runs_us(r, number(r.used.runtime.for_ms) / kMsPerSecond); });
}

}  // namespace

std::string metrics_text(const JobPicture& view, MetricsForm form) {
  MetricsWriter out(view, form);
  out.job("hvdrun_job_running_seconds", "Time since hvdrun began with the job.",
          number(view.running_ms) / kMsPerSecond);
  out.job("hvdrun_nodes", "Nodes of the job.", number(view.nodes.size()));
  out.states();
  out.nodes("hvdrun_node_connected", "gauge",
            "1: the node's agent is connected, or was until its ranks had ended; 0: it is not reached yet, its "
            "connection is being made again, or it is lost.",
            [](const NodeShown& n) { return Maybe(n.is_connected ? 1 : 0); });
  out.nodes("hvdrun_node_reconnects_total", "counter", "Times that the connection to the node was made again.",
            [](const NodeShown& n) { return Maybe(n.reconnects); });
  out.nodes("hvdrun_node_memory_bytes", "gauge", "Memory of the node.",
            [](const NodeShown& n) { return n.is_sampled ? Maybe(number(n.memory_total)) : std::nullopt; });
  out.nodes("hvdrun_node_memory_free_bytes", "gauge", "Memory of the node that programs could have.",
            [](const NodeShown& n) { return n.is_sampled ? Maybe(number(n.memory_free)) : std::nullopt; });
  out.nodes("hvdrun_node_busy_cores", "gauge", "Processors of the node in use, by whomever.",
            [](const NodeShown& n) { return n.is_sampled ? Maybe(n.cores) : std::nullopt; });
  out.gpus("hvdrun_gpu_busy_ratio", "Part of the time in which the GPU had work.",
           [](const GpuSample& g) { return g.busy_percent / 100.0; });
  out.gpus("hvdrun_gpu_memory_used_bytes", "Memory of the GPU in use.",
           [](const GpuSample& g) { return number(g.memory_bytes); });
  out.gpus("hvdrun_gpu_memory_bytes", "Memory of the GPU.", [](const GpuSample& g) { return number(g.memory_total); });
  write_ranks(out);
  return std::move(out).finish();
}

}  // namespace hvd::launch
