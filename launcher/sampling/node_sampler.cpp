#include "launcher/sampling/node_sampler.h"

#include <algorithm>

namespace hvd::launch {
namespace {

// The first look reads the state of all processes of the node. Ranks that end sooner do without.
constexpr Duration kFirstDelay = std::chrono::milliseconds(100);

}  // namespace

void NodeSampler::watch(Duration interval, bool wants_gpus) {
  loop_.cancel(std::exchange(timer_, 0));
  const bool was_watched = std::exchange(interval_, interval) > Duration::zero();
  if (interval <= Duration::zero() || !wants_gpus) {
    gpus_.reset();
  } else if (has_gpus_ && gpus_ == nullptr) {
    gpus_ = std::make_unique<GpuWatch>(loop_, environment_);
  }
  if (interval <= Duration::zero()) {
    return;
  }
  if (was_watched) {
    sample();
  } else {
    timer_ = loop_.after(std::min(interval, kFirstDelay), [this] { sample(); });
  }
}

void NodeSampler::tell_last(int rank, pid_t pid) {
  if (interval_ <= Duration::zero()) {
    return;
  }
  const auto runtime = activity_.read(pid, {});
  SampleMessage message;
  message.is_last = true;
  message.ranks.push_back({rank, 0, usage_.last_cpu_ms(pid), 0, false, runtime ? *runtime : activity_.past(pid)});
  sink_.send(message);
}

void NodeSampler::sample() {
  timer_ = loop_.after(interval_, [this] { sample(); });
  const std::vector<std::pair<int, pid_t>> ranks = sink_.ranks();
  std::vector<pid_t> pids;
  for (const auto& [rank, pid] : ranks) {
    pids.push_back(pid);
  }
  const std::map<pid_t, Usage> usage = usage_.measure(pids);
  SampleMessage message;
  message.at_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(loop_.now().time_since_epoch()).count());
  message.cpu_ms = node_cpu_ms();
  const NodeMemory memory = node_memory();
  message.memory_total = memory.total;
  message.memory_free = memory.free;
  for (const auto& [rank, pid] : ranks) {
    const Usage& used = usage.at(pid);
    const auto runtime = activity_.read(pid, usage_.tree(pid));
    message.ranks.push_back({rank, used.processes, used.cpu_ms, used.memory_bytes, runtime.has_value(),
                             runtime ? *runtime : activity_.past(pid)});
  }
  activity_.keep(pids);
  if (gpus_ != nullptr) {
    message.gpus = gpus_->gpus();
  }
  sink_.send(message);
}

}  // namespace hvd::launch
