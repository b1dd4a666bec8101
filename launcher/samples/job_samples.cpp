#include "launcher/samples/job_samples.h"

#include <algorithm>

namespace hvd::launch {
namespace {

// A count that has gone back is that of a process which was started again: it says nothing of the time before.
double rate(std::uint64_t before, std::uint64_t now, std::uint64_t ms, double per) {
  return now >= before && ms > 0 ? static_cast<double>(now - before) * per / static_cast<double>(ms) : 0;
}

constexpr double kPerSecond = 1000;
constexpr double kCores = 1;  // milliseconds of processors in a millisecond

}  // namespace

void JobSamples::take(int node, const SampleMessage& sample) {
  if (sample.is_last) {
    std::for_each(sample.ranks.begin(), sample.ranks.end(), [this](const RankSample& rank) { take_last(rank); });
    return;
  }
  NodeLast& last = nodes_[node];
  if (last.sample && sample.at_ms > last.sample->at_ms) {
    last.cores = rate(last.sample->cpu_ms, sample.cpu_ms, sample.at_ms - last.sample->at_ms, kCores);
  }
  last.sample = sample;
  last.sample->ranks.clear();
  for (const RankSample& rank : sample.ranks) {
    take_rank(rank, sample.at_ms);
  }
}

void JobSamples::take_rank(const RankSample& sample, std::uint64_t at_ms) {
  RankLast& last = ranks_[sample.rank];
  if (last.at_ms != 0 && at_ms > last.at_ms) {
    const std::uint64_t ms = at_ms - last.at_ms;
    last.cores = rate(last.sample.cpu_ms, sample.cpu_ms, ms, kCores);
    last.bytes_per_s = rate(last.sample.runtime.bytes, sample.runtime.bytes, ms, kPerSecond);
    last.operations_per_s = rate(last.sample.runtime.operations, sample.runtime.operations, ms, kPerSecond);
  }
  last.sample = sample;
  last.at_ms = at_ms;
}

// It came at no interval, so it makes no rates; those of the process before are no longer true.
void JobSamples::take_last(const RankSample& sample) {
  RankLast& last = ranks_[sample.rank];
  last = RankLast();
  last.sample = sample;
}

void JobSamples::note_output(int rank, std::string_view bytes, TimePoint now) {
  Printed& printed = printed_[rank];
  printed.bytes += bytes.size();
  printed.lines += static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
  printed.last = now;
}

void JobSamples::fill(JobPicture& view, TimePoint now) const {
  for (std::size_t i = 0; i < view.nodes.size(); ++i) {
    const auto found = nodes_.find(static_cast<int>(i));
    if (found == nodes_.end()) {
      continue;
    }
    NodeShown& node = view.nodes[i];
    node.reconnects = found->second.reconnects;
    if (const auto& sample = found->second.sample) {
      node.is_sampled = true;
      node.cores = found->second.cores;
      node.memory_total = sample->memory_total;
      node.memory_free = sample->memory_free;
      node.gpus = sample->gpus;
    }
  }
  for (RankShown& rank : view.ranks) {
    if (const auto found = ranks_.find(rank.rank); found != ranks_.end()) {
      rank.is_sampled = true;
      rank.used = found->second.sample;
      rank.cores = found->second.cores;
      rank.bytes_per_s = found->second.bytes_per_s;
      rank.operations_per_s = found->second.operations_per_s;
    }
    if (rank.state != "running") {
      rank.cores = rank.bytes_per_s = rank.operations_per_s = 0;
      rank.used.processes = 0;
      rank.used.memory_bytes = rank.used.runtime.for_ms = 0;
      rank.used.runtime.operation.clear();
    }
    if (const auto found = printed_.find(rank.rank); found != printed_.end()) {
      rank.lines = found->second.lines;
      rank.output_bytes = found->second.bytes;
      rank.silent_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - found->second.last).count();
    }
  }
  join_nodes(view);
  mark_odd_ranks(view);
}

}  // namespace hvd::launch
