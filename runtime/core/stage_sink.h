// StageSink is told which stages of collectives between hosts took how long on this rank, for the timeline. Stages of
// one operation overlap: while one part of the data is between hosts, the next is reduced within the host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd {

enum class Stage : std::uint8_t {
  kCollect,  // "HOST_REDUCE": the host's ranks pack their data, and reduce it to their leader
  kWire,     // "WIRE": the leaders exchange it
  kShare     // "HOST_SHARE": the host's ranks take the result
};
inline constexpr int kStageCount = 3;

// Thread: any.
class StageSink {
 public:
  virtual ~StageSink() = default;
  // Returns the time; 0: nobody wants to know of stages now.
  [[nodiscard]] virtual std::uint64_t begin_stage() = 0;
  // A stage has ended that began then.
  virtual void end_stage(Stage stage, std::uint64_t began, std::size_t bytes) = 0;
};

// StageSpan tells of one stage, from its construction until its end. Without a sink it does nothing.
class StageSpan {
 public:
  StageSpan(StageSink* sink, Stage stage, std::size_t bytes)
      : sink_(sink), stage_(stage), bytes_(bytes), began_(sink == nullptr ? 0 : sink->begin_stage()) {}
  ~StageSpan() {
    if (began_ != 0) {
      sink_->end_stage(stage_, began_, bytes_);
    }
  }
  StageSpan(const StageSpan&) = delete;
  StageSpan& operator=(const StageSpan&) = delete;

 private:
  StageSink* const sink_;
  const Stage stage_;
  const std::size_t bytes_;
  const std::uint64_t began_;
};

}  // namespace hvd
