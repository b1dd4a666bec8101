// ThreadJob: a job whose ranks are threads of this process, over a MemoryStore and real links: sockets on loopback
// between "nodes", shared memory within one. Each rank maps its node's memory itself, as processes do.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <stdlib.h>

#include "runtime/backend/cpu_backend.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"
#include "runtime/link/mesh.h"
#include "runtime/rendezvous/memory_store.h"

namespace hvd::test {

// Generous: the machine may be busy, and a test that fails must still end.
inline Deadline test_deadline() {
  return Deadline::after(std::chrono::seconds(300));
}

inline JobSecret make_secret(std::uint8_t first) {
  JobSecret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) {
    secret[i] = static_cast<std::uint8_t>(first + i);
  }
  return secret;
}

// ranks_on_node[i]: how many ranks node i has.
using Nodes = std::vector<int>;

inline int rank_count(const Nodes& nodes) {
  int count = 0;
  for (const int ranks : nodes) {
    count += ranks;
  }
  return count;
}

inline RankMap map_of(const Nodes& nodes, int rank) {
  RankMap map;
  map.rank = rank;
  map.size = rank_count(nodes);
  map.node_count = static_cast<int>(nodes.size());
  int first = 0;
  for (int node = 0; node < map.node_count; ++node) {
    const int ranks = nodes[static_cast<std::size_t>(node)];
    if (rank >= first && rank < first + ranks) {
      map.node_index = node;
      map.local_rank = rank - first;
      map.local_size = ranks;
    }
    first += ranks;
  }
  return map;
}

inline std::string text_of(const Nodes& nodes) {
  std::string text;
  for (const int ranks : nodes) {
    text += (text.empty() ? "" : "+") + std::to_string(ranks);
  }
  return text;
}

class ScratchDir {
 public:
  ScratchDir() {
    std::string name = "/tmp/hvd-test-XXXXXX";
    path_ = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~ScratchDir() { std::filesystem::remove_all(path_); }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

// Thread: any.
class LinesLog final : public Log {
 public:
  void write(LogLevel, std::string_view message) override {
    const std::lock_guard<std::mutex> lock(mu_);
    lines_.emplace_back(message);
  }
  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return lines_;
  }
  [[nodiscard]] int count_of(std::string_view part) const {
    int count = 0;
    for (const std::string& line : lines()) {
      count += line.find(part) != std::string::npos ? 1 : 0;
    }
    return count;
  }

 private:
  mutable std::mutex mu_;
  std::vector<std::string> lines_;
};

// What the engine does: the store's notices, and the control connections' ends.
class TestInterrupt final : public Interrupt {
 public:
  TestInterrupt(Store& store, const Mesh& mesh) : store_(store), mesh_(mesh) {}

  Result<void> check() override {
    if (const auto notice = store_.poll_notice()) {
      return Error(Code::kLostPeer, notice->cause);
    }
    const RankMap& map = mesh_.map();
    for (int rank = 0; rank < map.size; ++rank) {
      char byte = 0;
      const int fd = mesh_.control_fd(rank);
      if (fd >= 0 && ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        return Error(Code::kLostPeer, "rank " + std::to_string(rank) + " is gone");
      }
    }
    return {};
  }

 private:
  Store& store_;
  const Mesh& mesh_;
};

struct Rank {
  const RankMap& map;
  CpuBackend& backend;
  Interrupt& interrupt;
};

struct JobOptions {
  std::size_t shm_slot_bytes = 4U << 20U;
  Tuning tuning;
  std::function<bool(int rank)> is_sealed = [](int) { return false; };  // its connections with other nodes
  Deadline deadline = test_deadline();
  // A rank's store instead of the plain one, for tests that watch or spoil what ranks tell each other.
  std::function<std::unique_ptr<Store>(std::unique_ptr<Store>, int rank)> wrap_store;
  std::function<bool(int rank)> takes_part = [](int) { return true; };
  // A rank that fails ends the others, as its agent would.
  bool tells_failure = false;
  // A rank whose body has returned leaves at once, and not when all have, as the engine agrees it.
  bool leaves_alone = false;
};

// Every rank joins and runs `body`, and leaves when all of them have returned or one has failed. The result of each.
using Body = std::function<Result<void>(Rank&)>;

class ThreadJob {
 public:
  explicit ThreadJob(Nodes nodes)
      : nodes_(std::move(nodes)), hub_(MemoryHub::create(rank_count(nodes_), make_secret(1)).value()) {}

  [[nodiscard]] MemoryHub& hub() { return *hub_; }
  [[nodiscard]] LinesLog& log() { return log_; }
  [[nodiscard]] const ScratchDir& scratch() const { return scratch_; }

  std::vector<std::optional<Error>> run(const JobOptions& options, const Body& body) {
    std::vector<std::optional<Error>> errors(static_cast<std::size_t>(hub_->size()));
    std::vector<std::thread> threads;
    busy_ = 0;
    for (int rank = 0; rank < hub_->size(); ++rank) {
      busy_ += options.takes_part(rank) ? 1 : 0;
    }
    for (int rank = 0; rank < hub_->size(); ++rank) {
      if (options.takes_part(rank)) {
        threads.emplace_back([this, rank, &options, &body, &errors] {
          if (const auto done = run_rank(rank, options, body); !done.ok()) {
            errors[static_cast<std::size_t>(rank)] = done.error();
            if (options.tells_failure) {
              hub_->notify_all("rank " + std::to_string(rank) + " failed");
            }
            end_all();
          }
        });
      }
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return errors;
  }

 private:
  Result<void> run_rank(int rank, const JobOptions& options, const Body& body) {
    std::unique_ptr<Store> store = std::make_unique<MemoryStore>(hub_, rank);
    if (options.wrap_store) {
      store = options.wrap_store(std::move(store), rank);
    }
    MeshOptions mesh_options;
    const RankMap map = map_of(nodes_, rank);
    mesh_options.node_address = "127.0.0." + std::to_string(map.node_index + 1);
    mesh_options.scratch_dir = scratch_.path();
    mesh_options.shm_slot_bytes = options.shm_slot_bytes;
    mesh_options.is_sealed = options.is_sealed(rank);
    HVD_TRY_ASSIGN(const auto mesh, Mesh::join(map, *store, mesh_options, log_, options.deadline));
    CpuBackend backend(*mesh, options.tuning);
    TestInterrupt interrupt(*store, *mesh);
    Rank self{mesh->map(), backend, interrupt};
    HVD_TRY(body(self));
    if (!options.leaves_alone) {
      wait_for_all();
    }
    return {};
  }

  // A rank that is done earlier than another would else look like one that died.
  void wait_for_all() {
    std::unique_lock<std::mutex> lock(mu_);
    --busy_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return busy_ <= 0; });
  }
  void end_all() {
    const std::lock_guard<std::mutex> lock(mu_);
    busy_ = 0;
    changed_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable changed_;
  int busy_ = 0;  // ranks that have not returned; 0 or less: nobody waits any more. Guarded by mu_.
  Nodes nodes_;
  std::shared_ptr<MemoryHub> hub_;
  LinesLog log_;
  ScratchDir scratch_;
};

}  // namespace hvd::test
