// hvd_ctx is one rank's membership of a job, as C callers hold it: an engine, and the operations that have handles.
//
// It is not exported; tests make contexts over any Store with make_context.
// Thread: any (mutex mu_).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/abi/config.h"
#include "runtime/abi/operation_table.h"
#include "runtime/base/process_mark.h"
#include "runtime/base/result.h"
#include "runtime/engine/engine.h"
#include "runtime/execute/submit_queue.h"

struct hvd_ctx {
 public:
  // Joined describes how the job was joined, for the functions by which the program may ask.
  struct Joined {
    std::optional<hvd::RankMap> place;  // the place that the program sees, if the links use another
    bool is_by_mpi = false;
    std::string object_key;  // the key of hvd_mac
  };

  hvd_ctx(std::unique_ptr<hvd::Engine> engine, Joined joined);
  ~hvd_ctx();
  hvd_ctx(const hvd_ctx&) = delete;
  hvd_ctx& operator=(const hvd_ctx&) = delete;

  [[nodiscard]] const hvd::RankMap& map() const { return map_; }
  // True if the ranks found each other through MPI, or move their data by it.
  [[nodiscard]] bool uses_mpi() const { return is_by_mpi_; }
  // The cores that the job's ranks may use, if the job is on one node; otherwise 0.
  [[nodiscard]] hvd::Result<int> node_cores();
  // True once an elastic job has a newer generation, which waits for this rank to leave.
  [[nodiscard]] hvd::Result<bool> has_changed();
  // True while ranks are on their way that will join the job.
  [[nodiscard]] hvd::Result<bool> is_growing();
  // The MAC of data that other ranks should trust as more than numbers (hvd_mac).
  [[nodiscard]] std::string mac_of(hvd::Bytes bytes) const;
  // True if this process is a fork of the one that joined.
  [[nodiscard]] bool is_forked() const;

  hvd::Result<std::int64_t> enqueue(const hvd_op& op);
  // Runs a synchronous operation from start to end. If `handle` is null, nothing of the operation is kept, so its
  // result must be in the caller's memory.
  hvd::Result<void> execute(const hvd_op& op, std::int64_t* handle);
  // Starts all operations or none; the handles are in the order of the operations.
  hvd::Result<void> enqueue_group(std::span<const hvd_op* const> ops, hvd::Engine::Caller caller,
                                  std::int64_t* handles);
  // Starts each operation separately, until one is refused; handles[i] names ops[i].
  hvd::Result<void> enqueue_many(std::span<const hvd_op* const> ops, hvd::Engine::Caller caller, std::int64_t* handles);
  // Makes the process set of these ranks and returns its number. All ranks must call it at the same point, or all
  // members.
  hvd::Result<std::int32_t> add_process_set(const std::int32_t* ranks, std::int32_t count, bool by_members);
  hvd::Result<void> remove_process_set(std::int32_t number);
  [[nodiscard]] hvd::Result<std::vector<int>> process_sets();
  // Returns them ascending, or kNotFound.
  [[nodiscard]] hvd::Result<std::vector<int>> ranks_of_process_set(std::int32_t number);
  // Makes a buffer of the runtime's memory, and frees it. All ranks call these at the same point.
  hvd::Result<void*> create_buffer(std::int64_t size_bytes);
  hvd::Result<void> destroy_buffer(const void* data);
  // Waits until the operation is done, or the deadline has passed.
  void wait(const hvd::Operation& operation, const std::optional<hvd::Deadline>& until = std::nullopt);
  // Waits, and returns the operation's outcome. Work that its stream gets from now on runs after it.
  hvd::Result<void> finish(const hvd::Operation& operation);
  // Copies the result of a finished operation, if the runtime allocated it.
  hvd::Result<void> fetch(const hvd::Operation& operation, void* to, std::int64_t size_bytes, void* stream);
  hvd::Result<std::shared_ptr<const hvd::Operation>> find(std::int64_t handle);
  hvd::Result<void> release(std::int64_t handle);
  hvd::Result<void> read_counters(int process_set, hvd_counters& out);
  hvd::Result<void> start_timeline(const std::string& path, bool marks_cycles);
  hvd::Result<void> stop_timeline();
  // Leaves the job; pending operations complete. Handles stay valid for threads that wait.
  void close();

 private:
  // Returns kNotInitialized after the end, and in a fork of the process that joined.
  hvd::Result<std::shared_ptr<hvd::Engine>> engine();
  // `handles` has room for one handle per operation.
  hvd::Result<void> start(hvd::Engine& engine, std::span<hvd::OpRef> ops, hvd::Engine::Caller caller,
                          std::int64_t* handles);
  // Runs a change of process sets or buffers, which `fill` describes. T is the type of its result: a number or an
  // address.
  template <typename T, typename Fill>
  hvd::Result<T> change(const Fill& fill);

  // constant after construction
  const hvd::RankMap map_;
  const bool is_by_mpi_;
  const std::string object_key_;
  const hvd::ProcessMark process_;
  // guarded by mu_
  std::mutex mu_;
  std::vector<hvd::OpRef> spare_group_;  // always empty; kept so that its memory is used again
  std::shared_ptr<hvd::Engine> engine_;  // null once closed; a thread that waits in the engine keeps it alive
  // has a mutex of its own
  hvd::OperationTable operations_;
};

namespace hvd {

// Joins with the process's environment.
Result<std::unique_ptr<hvd_ctx>> make_context(const hvd_options* options);
// Joins over a given store; tests use it to run ranks as threads.
Result<std::unique_ptr<hvd_ctx>> make_context(Config config, std::unique_ptr<Store> store);

}  // namespace hvd
