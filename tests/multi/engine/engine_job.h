// EngineJob: ranks as threads through the C interface: one hvd_ctx per rank, over a MemoryStore and real links.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "hvd/hvd.h"
#include "runtime/abi/context.h"
#include "tests/multi/thread_job.h"

namespace hvd::test {

struct Outcome {
  hvd_status status = HVD_OK;
  std::string error;  // of a failure

  [[nodiscard]] bool says(const std::string& text) const { return error.find(text) != std::string::npos; }
};

inline Outcome outcome(hvd_status status) {
  return {status, status == HVD_OK ? "" : hvd_last_error()};
}

// Runs `body` for every rank at once.
inline void on_all(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back(body, rank);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class EngineJob {
 public:
  // What of a rank's configuration is not that of the others.
  using Adjust = std::function<void(int rank, Config& config)>;

  explicit EngineJob(Nodes nodes, EngineOptions options = {}, LogLevel log_level = LogLevel::kError, Adjust adjust = {})
      : nodes_(std::move(nodes)),
        options_(std::move(options)),
        log_level_(log_level),
        adjust_(std::move(adjust)),
        contexts_(static_cast<std::size_t>(size())) {
    hub_ = MemoryHub::create(size(), make_secret(1)).value();
    start();
  }
  ~EngineJob() { stop(); }
  EngineJob(const EngineJob&) = delete;
  EngineJob& operator=(const EngineJob&) = delete;

  // Joins, on all ranks (those for which `takes_part`).
  void start(const std::function<bool(int)>& takes_part = [](int) { return true; }) {
    std::vector<std::string> errors(contexts_.size());
    on_all(size(), [&](int rank) {
      if (takes_part(rank)) {
        auto made = make_context(config(rank), std::make_unique<MemoryStore>(hub_, rank));
        if (made.ok()) {
          contexts_[static_cast<std::size_t>(rank)] = std::move(made).value();
        } else {
          errors[static_cast<std::size_t>(rank)] = made.error().message();
        }
      }
    });
    for (const std::string& error : errors) {
      REQUIRE(error == "");
    }
  }
  // Leaves, on all ranks at once.
  void stop() {
    on_all(size(), [&](int rank) { leave(rank); });
  }
  void leave(int rank) { hvd_destroy(contexts_[static_cast<std::size_t>(rank)].release()); }

  [[nodiscard]] int size() const { return rank_count(nodes_); }
  [[nodiscard]] MemoryHub& hub() { return *hub_; }
  [[nodiscard]] hvd_ctx* at(int rank) const { return contexts_[static_cast<std::size_t>(rank)].get(); }
  [[nodiscard]] std::shared_ptr<MemoryHub> shared_hub() const { return hub_; }
  [[nodiscard]] MeshOptions mesh_options(int rank) const { return config(rank).engine.mesh; }
  [[nodiscard]] RankMap map(int rank) const { return map_of(nodes_, rank); }

 private:
  [[nodiscard]] Config config(int rank) const {
    Config config;
    config.map = map(rank);
    config.engine = options_;
    config.engine.mesh.node_address = "127.0.0." + std::to_string(config.map.node_index + 1);
    config.engine.mesh.scratch_dir = scratch_.path();
    config.engine.mesh.shm_slot_bytes = 1U << 20U;
    config.log_level = log_level_;
    if (adjust_) {
      adjust_(rank, config);
    }
    return config;
  }

  Nodes nodes_;
  EngineOptions options_;
  LogLevel log_level_;
  Adjust adjust_;
  ScratchDir scratch_;
  std::shared_ptr<MemoryHub> hub_;
  std::vector<std::unique_ptr<hvd_ctx>> contexts_;
};

inline const std::vector<Nodes>& all_layouts() {
  static const std::vector<Nodes> layouts = {{1}, {2}, {1, 1}, {3}, {2, 2}, {4}, {5, 3}};
  return layouts;
}

// An allreduce of float32, ready to be changed.
struct FloatOp {
  std::vector<float> input;
  std::vector<float> output;
  std::int64_t count;
  std::string name;
  hvd_op op = HVD_OP_INIT;

  FloatOp(std::string tensor, std::size_t size, float value)
      : input(size, value), output(size, -1.0F), count(static_cast<std::int64_t>(size)), name(std::move(tensor)) {
    op.kind = HVD_ALLREDUCE;
    op.ndim = 1;
    op.shape = &count;
    op.name = name.c_str();
    op.input = input.data();
    op.output = output.data();
  }
  FloatOp(const FloatOp&) = delete;
  FloatOp& operator=(const FloatOp&) = delete;

  Outcome start(hvd_ctx* ctx) { return outcome(hvd_enqueue(ctx, &op, &handle)); }
  Outcome wait(hvd_ctx* ctx) const { return outcome(hvd_wait(ctx, handle)); }
  Outcome run(hvd_ctx* ctx) {
    const Outcome started = start(ctx);
    return started.status == HVD_OK ? wait(ctx) : started;
  }

  std::int64_t handle = 0;
};

}  // namespace hvd::test
