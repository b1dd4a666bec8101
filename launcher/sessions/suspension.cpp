#include "launcher/sessions/suspension.h"

#include <signal.h>

namespace hvd::launch {
namespace {

// Agents get this long to answer. The ranks of one that does not answer run on until they wait for the others.
constexpr auto kAnswerTime = std::chrono::seconds(2);

}  // namespace

// It uses SIGTSTP's default action and not SIGSTOP. Where no shell could continue this process (its group is orphaned,
// as under `ssh -t host hvdrun`), the kernel ignores SIGTSTP and the process runs on.
void stop_self(EventLoop& loop) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTSTP);
  const TimePoint began = loop.clock().now();  // the loop's own time stands still while this process does
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  loop.postpone(loop.clock().now() - began);
}

void Suspension::begin() {
  if (is_under_way_) {
    return;
  }
  is_under_way_ = true;
  missing_ = sink_.suspend();
  if (missing_ == 0) {
    stop();
    return;
  }
  timer_ = loop_.after(kAnswerTime, [this] {
    timer_ = 0;
    stop();
  });
}

void Suspension::on_suspended() {
  if (is_under_way_ && --missing_ == 0) {
    stop();
  }
}

void Suspension::stop() {
  loop_.cancel(timer_);
  timer_ = 0;
  sink_.leave_terminal();
  stop_self(loop_);
  is_under_way_ = false;
  sink_.let_continue();
}

}  // namespace hvd::launch
