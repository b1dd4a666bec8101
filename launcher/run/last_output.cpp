#include "launcher/run/last_output.h"

#include <chrono>
#include <utility>

namespace hvd::launch {
namespace {

// These limit how long readers may take for the last of the output. After a success hvdrun waits for them, as any
// program does. After a failure a slow reader gets kFlushAfterFailure, and one that takes nothing gets only kStall, so
// that the job ends 2 s after the grace period.
constexpr auto kFlushTime = std::chrono::hours(24);
constexpr auto kFlushAfterFailure = std::chrono::seconds(5);
constexpr auto kStall = std::chrono::milliseconds(1200);
constexpr auto kStallOfStuck = std::chrono::milliseconds(200);

}  // namespace

void LastOutput::stop_waiting_in(Duration delay) {
  job_.loop.cancel(timer_);
  timer_ = job_.loop.after(delay, [this] {
    timer_ = 0;
    is_reader_stuck_ = job_.logs.unwritten() > 0;
    job_.logs.stop_waiting();
  });
}

Result<void> LastOutput::flush() {
  job_.loop.cancel(std::exchange(timer_, 0));
  // A signal that came when all ranks had ended, before this began, cuts the first flush short.
  const int before = std::exchange(is_flushing_, true) ? cut_short_by_ : 0;
  const bool has_failed = job_.state.exit_code() != 0;
  LogMux::Patience patience{has_failed ? Duration(kFlushAfterFailure) : Duration(kFlushTime),
                            is_reader_stuck_ || cut_short_by_ != 0 ? Duration(kStallOfStuck)
                            : has_failed                           ? Duration(kStall)
                                                                   : Duration(kFlushTime)};
  patience.is_over = [this, before] { return cut_short_by_ != before; };
  return job_.logs.flush_all(patience);
}

void LastOutput::flush_refusal() {
  static_cast<void>(job_.logs.flush_all({kFlushAfterFailure, kStall}));
}

void LastOutput::tell_unwritten() {
  if (const std::size_t left = job_.logs.unwritten(); left > 0) {
    is_reader_stuck_ = true;
    job_.say(
        Note{LogLevel::kWarning, -1,
             std::to_string(left) + " bytes of what the ranks printed were not written: who reads them takes nothing"});
  }
}

bool LastOutput::on_signal(int signo) {
  const bool is_over = is_flushing_ || job_.state.phase() == JobPhase::kDone;
  cut_short_by_ = is_over ? signo : cut_short_by_;
  return is_over;
}

}  // namespace hvd::launch
