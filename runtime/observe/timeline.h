// Timeline: what becomes of each tensor, as a file that Perfetto and chrome://tracing open: when it was first asked
// for, when each rank was ready, when it waited, moved and was done, in Horovod's phases. On rank 0 only, as Horovod's.
//
// Who turns the engine only puts small records into a ring; a thread of the timeline's own makes text of them. When the
// ring is full records are dropped, and counted in the file. Off, it costs one look at a flag.
// Thread: any (mutex mu_, which the writing thread does not take).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/core/op_kind.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineWriter;

// What a tensor is going through.
enum class TracePhase : std::uint8_t {
  kNegotiate,  // "NEGOTIATE_ALLREDUCE": asked for by some ranks
  kOperation,  // "ALLREDUCE": ready on all, until done here
  kQueue,      // "QUEUE": until it is begun
  kPack,       // "MEMCPY_IN_FUSION_BUFFER"
  kMove,       // "HVD_ALLREDUCE": the collective itself
  kUnpack      // "MEMCPY_OUT_FUSION_BUFFER"
};

struct TimelineOptions {
  std::string path;  // empty: off until start()
  bool marks_cycles = false;
  std::size_t ring_records = 1U << 16U;  // 4 MiB, made at the first start
};

class Timeline {
 public:
  // `on_failed`: the file cannot be written any more; from the writing thread.
  Timeline(TimelineOptions options, std::function<void(const Error&)> on_failed);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Begins a new file; kInvalid while one is written. What is under way already is not in it.
  Result<void> start(const std::string& path, bool marks_cycles);
  // Writes what is left and closes the file. Nothing happens when none is written.
  void stop();

  [[nodiscard]] bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  // A tensor goes by its key: its name, or that and its process set's number with a NUL between.
  void asked(const std::string& key, OpKind kind, int rank);
  // All have asked; `runs_here`: and it will be done here.
  void ready(const std::string& key, OpKind kind, bool runs_here);
  void begin(const std::string& key, OpKind kind, TracePhase phase);
  void end(const std::string& key, OpKind kind, TracePhase phase);
  // The operation's end, with what it was about.
  void done(const std::string& key, OpKind kind, Dtype dtype, std::span<const std::int64_t> shape);
  // An operation whose ranks met by themselves, done since `began` (ticks).
  void met(const std::string& key, OpKind kind, std::uint64_t began, Dtype dtype, std::span<const std::int64_t> shape);
  // The coordinator has decided something.
  void cycle();

 private:
  struct Tensor {
    std::uint32_t number = 0;
    std::uint64_t file = 0;  // the file in which `open` counts
    std::uint32_t open = 0;  // bits by TracePhase
  };

  Tensor* tensor_of(const std::string& key);
  void put(const Tensor& tensor, TraceRecord::Kind kind, OpKind op, TracePhase phase, int rank);
  void open(Tensor& tensor, OpKind kind, TracePhase phase);
  bool close(Tensor& tensor, TracePhase phase);

  // constant after construction
  const TimelineOptions options_;
  const std::function<void(const Error&)> on_failed_;
  // any thread
  std::atomic<bool> is_on_ = false;
  // guarded by mu_
  std::mutex mu_;
  std::unique_ptr<TraceRing> ring_;
  std::unordered_map<std::string, Tensor> tensors_;
  std::uint64_t files_ = 0;
  bool marks_cycles_ = false;
  std::atomic<std::uint64_t> dropped_ = 0;
  // guarded by start_mu_, which is taken first
  std::mutex start_mu_;
  std::unique_ptr<TimelineWriter> writer_;
};

}  // namespace hvd
