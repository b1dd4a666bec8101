#include "launcher/sampling/gpu_watch.h"

#include <utility>

namespace hvd::launch {
namespace {

// A line that is longer says nothing of a GPU.
constexpr std::size_t kLongestRow = 512;

}  // namespace

GpuWatch::GpuWatch(EventLoop& loop, const std::vector<std::string>& environment) {
  SpawnOptions program;
  program.argv = {"nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used,memory.total",
                  "--format=csv,noheader,nounits", "-l", "1"};
  program.environment = environment;
  Child::Options options;
  options.joins_errors = true;
  options.has_errors = false;
  options.is_reaped_elsewhere = true;
  Child::Handlers handlers;
  handlers.on_output = [this](Child::Stream, std::string_view bytes) { take(bytes); };
  auto child = Child::start(loop, std::move(program), options, std::move(handlers));
  if (child.ok()) {
    child_ = std::move(child).value();
  }
}

void GpuWatch::take(std::string_view bytes) {
  for (const char c : bytes) {
    if (c != '\n') {
      if (line_.size() < kLongestRow) {
        line_ += c;
      }
      continue;
    }
    if (const auto gpu = parse_gpu_row(std::exchange(line_, {}))) {
      gpus_[gpu->index] = *gpu;
    }
  }
}

std::vector<GpuSample> GpuWatch::gpus() const {
  std::vector<GpuSample> all;
  for (const auto& [index, gpu] : gpus_) {
    all.push_back(gpu);
  }
  return all;
}

bool GpuWatch::on_exited(pid_t pid, const ExitStatus& status) {
  if (!owns(pid)) {
    return false;
  }
  child_->mark_exited(status);
  gpus_.clear();
  return true;
}

}  // namespace hvd::launch
