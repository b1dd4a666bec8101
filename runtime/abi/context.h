// hvd_ctx: one rank's membership of a job, as C callers hold it: an engine and the operations that have handles.
//
// Thread: any (mutex mu_). Not exported; tests make contexts over any Store with make_context.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/abi/config.h"
#include "runtime/base/process_mark.h"
#include "runtime/base/result.h"
#include "runtime/core/block_pool.h"
#include "runtime/core/completion.h"
#include "runtime/engine/engine.h"
#include "runtime/execute/quick_path.h"
#include "runtime/execute/submit_queue.h"

struct hvd_ctx {
 public:
  // How the job was joined, as far as the program may ask for it.
  struct Joined {
    std::optional<hvd::RankMap> place;  // what the program is told of its place, where links are made otherwise
    bool is_by_mpi = false;
    std::string object_key;  // of hvd_mac
  };

  hvd_ctx(std::unique_ptr<hvd::Engine> engine, Joined joined);
  ~hvd_ctx();
  hvd_ctx(const hvd_ctx&) = delete;
  hvd_ctx& operator=(const hvd_ctx&) = delete;

  // What a handle stands for. Whoever waits keeps a reference, so that hvd_release or the end of the context in another
  // thread does not pull it away.
  struct Operation {
    std::shared_ptr<hvd::Completion> completion;
    void* output = nullptr;
    std::size_t size_bytes = 0;
    void* stream = nullptr;  // of the device that it is on
    std::array<std::int64_t, HVD_MAX_DIMS> extents{};
    std::size_t ndim = 0;

    // Of the output where that is the caller's.
    [[nodiscard]] std::span<const std::int64_t> shape() const { return std::span(extents).first(ndim); }
    void set_shape(std::span<const std::int64_t> from) {
      std::copy(from.begin(), from.end(), extents.begin());
      ndim = from.size();
    }
  };

  [[nodiscard]] const hvd::RankMap& map() const { return map_; }
  // The ranks have met by MPI, or move their data by it.
  [[nodiscard]] bool uses_mpi() const { return is_by_mpi_; }
  // Of the job, where it is on one node; else 0.
  [[nodiscard]] hvd::Result<int> node_cores();
  // Of what is sent to other ranks as more than numbers.
  [[nodiscard]] std::string mac_of(hvd::Bytes bytes) const;
  // This process is a fork of the one that joined.
  [[nodiscard]] bool is_forked() const;

  hvd::Result<std::int64_t> enqueue(const hvd_op& op);
  // The whole of a synchronous operation. Without a handle (null) nothing remains of it, so that its result must be
  // memory of the caller's.
  hvd::Result<void> execute(const hvd_op& op, std::int64_t* handle);
  // All or none; the handles are in the order of the operations.
  hvd::Result<void> enqueue_group(std::span<const hvd_op* const> ops, std::int64_t* handles);
  // Each by itself, until one is refused; handles[i] names ops[i].
  hvd::Result<void> enqueue_many(std::span<const hvd_op* const> ops, hvd::Engine::Caller caller, std::int64_t* handles);
  // Makes the process set of these ranks, as all ranks must at once, or all members; its number.
  hvd::Result<std::int32_t> add_process_set(const std::int32_t* ranks, std::int32_t count, bool by_members);
  hvd::Result<void> remove_process_set(std::int32_t number);
  [[nodiscard]] hvd::Result<std::vector<int>> process_sets();
  // Ascending; kNotFound.
  [[nodiscard]] hvd::Result<std::vector<int>> ranks_of_process_set(std::int32_t number);
  // Memory of the runtime's, which all ranks ask for at once; and its end.
  hvd::Result<void*> create_buffer(std::int64_t size_bytes);
  hvd::Result<void> destroy_buffer(const void* data);
  // Until the operation is done, or the deadline has passed.
  void wait(const Operation& operation, const std::optional<hvd::Deadline>& until = std::nullopt);
  // The same, and its outcome; what its stream gets from here on runs behind it.
  hvd::Result<void> finish(const Operation& operation);
  // Copies the result of a finished operation that the runtime has allocated.
  hvd::Result<void> fetch(const Operation& operation, void* to, std::int64_t size_bytes, void* stream);
  hvd::Result<std::shared_ptr<const Operation>> find(std::int64_t handle);
  hvd::Result<void> release(std::int64_t handle);
  hvd::Result<void> read_counters(int process_set, hvd_counters& out);
  hvd::Result<void> start_timeline(const std::string& path, bool marks_cycles);
  hvd::Result<void> stop_timeline();
  // Leaves the job; pending operations complete. Handles stay valid for those who wait.
  void close();

 private:
  // kNotInitialized after the end, and in a fork of the process that joined.
  hvd::Result<std::shared_ptr<hvd::Engine>> engine();
  // handles: as many.
  hvd::Result<void> start(hvd::Engine& engine, std::span<hvd::OpRef> ops, hvd::Engine::Caller caller,
                          std::int64_t* handles);
  std::shared_ptr<Operation> make_operation();
  std::shared_ptr<const Operation> done_operation(const hvd::QuickOp& op);
  // Runs a change of what all ranks have, which `fill` describes. T: the number or address that is its result.
  template <typename T, typename Fill>
  hvd::Result<T> change(const Fill& fill);
  std::int64_t keep(std::shared_ptr<const Operation> operation);

  // constant after construction
  const hvd::RankMap map_;
  const bool is_by_mpi_;
  const std::string object_key_;
  const hvd::ProcessMark process_;
  const std::shared_ptr<hvd::BlockPool> operation_blocks_ = std::make_shared<hvd::BlockPool>();
  const std::shared_ptr<hvd::BlockPool> completion_blocks_ = std::make_shared<hvd::BlockPool>();
  // guarded by mu_
  std::mutex mu_;
  std::vector<hvd::OpRef> spare_group_;  // empty, kept for its memory
  std::shared_ptr<hvd::Engine> engine_;  // null once closed; who waits in it keeps it
  using Operations =
      std::unordered_map<std::int64_t, std::shared_ptr<const Operation>, std::hash<std::int64_t>, std::equal_to<>,
                         hvd::BlockAllocator<std::pair<const std::int64_t, std::shared_ptr<const Operation>>>>;
  Operations operations_{Operations::allocator_type(std::make_shared<hvd::BlockPool>())};
};

namespace hvd {

// Joins with the process's environment.
Result<std::unique_ptr<hvd_ctx>> make_context(const hvd_options* options);
// Joins over a given store: ranks as threads.
Result<std::unique_ptr<hvd_ctx>> make_context(Config config, std::unique_ptr<Store> store);

}  // namespace hvd
