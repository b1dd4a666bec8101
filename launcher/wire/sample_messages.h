// An agent tells this while somebody watches the job (hvdrun top, --metrics): bodies of the messages kWatch and kSample
// of messages.h. Counts grow from the beginning of a process, so that a lost moment loses nothing; rates are made where
// two samples meet (launcher/samples). Every decoder is total. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/wire/messages.h"

namespace hvd::launch {

struct WatchMessage {
  std::uint32_t interval_ms = 0;  // between two samples; 0: no samples any more
  bool wants_gpus = false;        // also what the GPUs do, for which a program runs on the node

  static void fields(auto& m, auto& walk) { walk(m.interval_ms, m.wants_gpus); }
  [[nodiscard]] std::string encode() const;
  static Result<WatchMessage> decode(std::string_view body);
};

// OperationSample says what a rank's operations of one kind have come to.
struct OperationSample {
  std::string kind;              // "allreduce"
  std::uint64_t operations = 0;  // finished
  std::uint64_t bytes = 0;       // of their inputs
  std::uint64_t lasted_us = 0;   // from when the rank had asked until they were done
  std::uint64_t waited_us = 0;   // of these, until the other ranks had asked too; not known of the quickest ones

  static void fields(auto& m, auto& walk) { walk(m.kind, m.operations, m.bytes, m.lasted_us, m.waited_us); }
};

// RuntimeSample is what a rank's libhvd says of itself.
struct RuntimeSample {
  std::uint64_t operations = 0;        // finished
  std::uint64_t bytes = 0;             // of their inputs
  std::string operation;               // that runs or waits now: "allreduce"; empty: none
  std::string tensor;                  // its name, which may be cut
  std::uint64_t for_ms = 0;            // how long it has lasted
  std::vector<OperationSample> kinds;  // that the rank has used

  static void fields(auto& m, auto& walk) { walk(m.operations, m.bytes, m.operation, m.tensor, m.for_ms, m.kinds); }
};

// A rank's process and all that it has started and that still runs.
struct RankSample {
  std::int32_t rank = 0;
  std::int32_t processes = 0;
  std::uint64_t cpu_ms = 0;        // used so far, in user and kernel mode
  std::uint64_t memory_bytes = 0;  // resident; what processes share counts for each
  bool has_runtime = false;        // it has libhvd open, which writes what `runtime` says
  RuntimeSample runtime;           // not open: what it has counted before

  static void fields(auto& m, auto& walk) {
    walk(m.rank, m.processes, m.cpu_ms, m.memory_bytes, m.has_runtime, m.runtime);
  }
};

struct GpuSample {
  std::int32_t index = 0;
  std::int32_t busy_percent = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_total = 0;

  static void fields(auto& m, auto& walk) { walk(m.index, m.busy_percent, m.memory_bytes, m.memory_total); }
};

struct SampleMessage {
  std::uint64_t at_ms = 0;         // by a clock of the node that only goes forward
  std::uint64_t cpu_ms = 0;        // used on the whole node, by whomever
  std::uint64_t memory_total = 0;  // bytes, of the node
  std::uint64_t memory_free = 0;   // bytes that programs could have
  std::vector<RankSample> ranks;
  std::vector<GpuSample> gpus;  // none: the node has none, or does not tell
  bool is_last = false;         // of these ranks, which have ended; it says nothing of the node

  static void fields(auto& m, auto& walk) {
    walk(m.at_ms, m.cpu_ms, m.memory_total, m.memory_free, m.ranks, m.gpus, m.is_last);
  }
  [[nodiscard]] std::string encode() const;
  static Result<SampleMessage> decode(std::string_view body);
};

}  // namespace hvd::launch
