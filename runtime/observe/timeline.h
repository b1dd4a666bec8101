// Timeline records what happens to each tensor, as a file for Perfetto and chrome://tracing, in Horovod's phases: when
// it was first asked for, when each rank was ready, when it waited, moved and was done. Only rank 0 has one, as in
// Horovod.
//
// The thread that runs the engine only puts small records into a ring; the timeline's own thread turns them into text.
// If the ring is full, records are dropped, and their number is written to the file. While it is off, it costs one test
// of a flag.
// Thread: any (mutex mu_, which the writing thread does not take).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/core/op_kind.h"
#include "runtime/core/stage_sink.h"
#include "runtime/observe/timeline_file.h"
#include "runtime/observe/trace_record.h"
#include "runtime/observe/trace_ring.h"

namespace hvd {

class TimelineWriter;

struct TimelineOptions {
  std::string path;  // empty: off until start()
  bool marks_cycles = false;
  // The job has begun anew, as elastic jobs do: what is at this path may be its own earlier timeline, and stays.
  bool keeps_earlier = false;
  std::size_t ring_records = 1U << 18U;  // 4 MiB, allocated at the first start
};

// A tensor is identified by its name within its process set.
struct TraceKey {
  int process_set = 0;
  std::string_view name;
};

class Timeline final : public StageSink {
 public:
  // `on_failed` is called if the file cannot be written any more, by the writing thread or by stop().
  Timeline(TimelineOptions options, std::function<void(const Error&)> on_failed);
  ~Timeline() override;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Begins a new file; kInvalid while one is being written. Operations that are already running do not appear in it.
  Result<void> start(const std::string& path, bool marks_cycles);
  // Does the same with the file that `open` opens, which is called only if none is being written.
  Result<void> start(const std::function<Result<TimelineFile>()>& open, bool marks_cycles);
  // Writes the remaining records and closes the file; does nothing if none is being written.
  void stop();

  [[nodiscard]] bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  // The records of this file that were dropped.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // The stages of collectives between hosts get rows of their own.
  [[nodiscard]] std::uint64_t begin_stage() override;
  void end_stage(Stage stage, std::uint64_t began, std::size_t bytes) override;

  // Moment records events of any number of tensors at one time: it reads the clock once, and holds the lock as long as
  // it lives. It does nothing while the timeline is off.
  class Moment {
   public:
    explicit Moment(Timeline& timeline);
    ~Moment();
    Moment(const Moment&) = delete;
    Moment& operator=(const Moment&) = delete;

    void asked(const TraceKey& key, OpKind kind, int rank);
    // All ranks have asked; `runs_here`: the operation will run on this rank.
    void ready(const TraceKey& key, OpKind kind, bool runs_here);
    // A phase of the operation begins, and the one before ends.
    void begin(const TraceKey& key, OpKind kind, TracePhase phase);
    // The current phase ends; the operation goes on, or has failed.
    void pause(const TraceKey& key, OpKind kind);
    // The operation ends; its type and shape are recorded.
    void done(const TraceKey& key, OpKind kind, Dtype dtype, std::span<const std::int64_t> shape);
    // An operation of the quick path, which lasted from `began` (ticks) until now.
    void met(const TraceKey& key, OpKind kind, std::uint64_t began, Dtype dtype, std::span<const std::int64_t> shape);
    // The coordinator has made a decision.
    void cycle();

   private:
    Timeline* timeline_;  // null: it is off
    std::unique_lock<std::mutex> lock_;
    std::uint64_t ticks_ = 0;
  };

 private:
  // Extents beyond this number are left out.
  static constexpr std::size_t kMostExtents = 8;
  struct Shape {
    int dims = -1;  // -1: no shape was recorded
    Dtype dtype = Dtype::kUint8;
    std::array<std::int64_t, kMostExtents> extents{};

    bool operator==(const Shape&) const = default;
  };
  struct Tensor {
    std::uint32_t number = 0;
    std::uint32_t open = 0;  // bits by TracePhase: begun in the file, and not ended
    Shape shape{};           // as last written to the file
  };
  struct Name {
    int process_set = 0;
    std::string text;
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(const TraceKey& key) const;
    std::size_t operator()(const Name& name) const { return (*this)(TraceKey{name.process_set, name.text}); }
  };
  struct NameEqual {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.process_set == b.process_set && view(a) == view(b);
    }
    static std::string_view view(const TraceKey& key) { return key.name; }
    static std::string_view view(const Name& name) { return name.text; }
  };

  Tensor* find(const TraceKey& key);
  Tensor* find_or_add(const TraceKey& key);
  bool tell_name(std::uint32_t number, const TraceKey& key);
  void put(Tensor& tensor, TraceRecord record, std::uint32_t ends, std::uint32_t begins);
  bool put_shape(Tensor& tensor, Dtype dtype, std::span<const std::int64_t> shape);
  bool put_all(std::span<const TraceRecord> records);

  // constant after construction
  const TimelineOptions options_;
  const std::function<void(const Error&)> on_failed_;
  // any thread
  std::atomic<bool> is_on_ = false;
  std::atomic<std::uint64_t> dropped_ = 0;
  // guarded by mu_
  std::mutex mu_;
  std::unique_ptr<TraceRing> ring_;
  std::unordered_map<Name, Tensor, NameHash, NameEqual> tensors_;
  std::size_t open_phases_ = 0;  // of all tensors
  bool marks_cycles_ = false;
  // guarded by start_mu_, which is locked before mu_; while the timeline is on, holders of mu_ may use it too
  std::mutex start_mu_;
  std::unique_ptr<TimelineWriter> writer_;
};

}  // namespace hvd
