// For tests of steps on devices: gradients, and what is told meanwhile.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/multi/device/device_job.h"

namespace hvd::test {

// Gradients of one rank, in place.
struct Gradients {
  Gradients(Gpu& gpu, int count, int rank) {
    for (int i = 0; i < count; ++i) {
      Task task{HVD_ALLREDUCE, Dtype::kFloat32, HVD_AVERAGE, {100 + i}, "gradient " + std::to_string(i)};
      task.in_place = true;
      tensors.push_back(
          std::make_unique<DeviceTensor>(gpu, values_of(task.dtype, static_cast<std::size_t>(100 + i), rank)));
      tasks.push_back(std::move(task));
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      ops.push_back(tasks[i].op_on(tensors[i]->data(), tensors[i]->data()));
      ops.back().device = gpu.device->info().ordinal;
      ops.back().stream = gpu.stream.handle();
    }
  }
  // All as one group, and until it is done.
  void step(hvd_ctx* ctx) {
    std::vector<const hvd_op*> pointers;
    for (const hvd_op& op : ops) {
      pointers.push_back(&op);
    }
    std::vector<std::int64_t> handles(ops.size());
    HVD_CHECK(hvd_enqueue_group(ctx, pointers.data(), static_cast<int>(ops.size()), handles.data()) == HVD_OK);
    HVD_CHECK(hvd_finish(ctx, handles.data(), static_cast<int>(handles.size())) == HVD_OK);
  }

  std::vector<Task> tasks;
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
  std::vector<hvd_op> ops;
};

// What `body` writes to standard error.
inline std::string errors_of(const std::function<void()>& body) {
  const ScratchDir folder;
  const std::string path = folder.path() + "/errors";
  const int saved = ::dup(2);
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ::dup2(file, 2);
  body();
  ::dup2(saved, 2);
  ::close(file);
  ::close(saved);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline int times_in(const std::string& text, const std::string& part) {
  int times = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

}  // namespace hvd::test
