#include "launcher/process/inherited_signals.h"

#include <signal.h>

namespace hvd {

std::vector<int> without_ignored(std::vector<int> signals) {
  std::erase_if(signals, [](int signo) {
    struct sigaction inherited{};
    return ::sigaction(signo, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
  });
  return signals;
}

void restore_child_signal() {
  ::signal(SIGCHLD, SIG_DFL);
}

}  // namespace hvd
