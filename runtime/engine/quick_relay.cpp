#include "runtime/engine/quick_relay.h"

#include <algorithm>
#include <utility>

namespace hvd {

void QuickRelay::open(const SubmitQueue& queue, std::function<void()> wake) {
  queue_ = &queue;
  wake_ = std::move(wake);
}

void QuickRelay::ask(int process_set, std::uint64_t round, const QuickOp& op) {
  {
    const AnswerCall call{process_set, round, op.kind,
                          op.name.empty() ? noname_of(op.kind, op.noname) : std::string(op.name)};
    const std::lock_guard lock(mu_);
    if (std::find(calls_.begin(), calls_.end(), call) == calls_.end()) {
      calls_.push_back(call);
    }
  }
  wake_();
}

void QuickRelay::fail(const Error& why) {
  {
    const std::lock_guard lock(mu_);
    failed_ = failed_ ? failed_ : why;
  }
  wake_();
}

std::vector<AnswerCall> QuickRelay::take() {
  const std::lock_guard lock(mu_);
  return std::exchange(calls_, {});
}

std::optional<Error> QuickRelay::take_error() {
  const std::lock_guard lock(mu_);
  return std::exchange(failed_, std::nullopt);
}

}  // namespace hvd
