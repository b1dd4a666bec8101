#include "runtime/engine/coordinator.h"

#include "runtime/controller/fusion_plan.h"

namespace hvd {

Coordinator::Coordinator(EventLoop& loop, const Options& options)
    : loop_(loop), options_(options), negotiator_(options.size) {}

Coordinator::~Coordinator() {
  loop_.cancel(window_);
}

std::vector<Response> Coordinator::decide() {
  if (!negotiator_.has_ready()) {
    return {};
  }
  const bool is_worth_waiting =
      negotiator_.has_fresh_incomplete() && !has_waited_ && options_.window > Duration::zero();
  if (!is_worth_waiting) {
    return decide_now();
  }
  if (window_ == 0) {
    window_ = loop_.after(options_.window, [this] {
      window_ = 0;
      has_waited_ = true;
    });
  }
  return {};
}

std::vector<Response> Coordinator::decide_now() {
  loop_.cancel(window_);
  window_ = 0;
  has_waited_ = false;
  return plan_fusion(negotiator_.take(), options_.fusion_threshold_bytes, options_.size);
}

}  // namespace hvd
