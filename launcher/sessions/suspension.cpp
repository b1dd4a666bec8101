#include "launcher/sessions/suspension.h"

#include <signal.h>

namespace hvd::launch {
namespace {

// Agents get this long to answer. The ranks of one that does not answer run on until they wait for the others.
constexpr auto kAnswerTime = std::chrono::seconds(2);

// Stops this process and returns when it is continued. It uses SIGTSTP's default action and not SIGSTOP. Where no shell
// could continue this process (its group is orphaned, as under `ssh -t host hvdrun`), the kernel ignores SIGTSTP and
// the process runs on.
void stop_self() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTSTP);
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace

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
  const TimePoint began = loop_.clock().now();  // the loop's own time stands still while this process does
  stop_self();
  is_under_way_ = false;
  sink_.let_continue(loop_.clock().now() - began);
}

}  // namespace hvd::launch
