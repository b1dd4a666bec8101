// QuickRelay passes on to the engine what threads in a quick path between hosts need from it: that other nodes are
// called for an answer, and that a connection was lost. The engine is woken for either.
//
// Thread: any (mutex mu_); take() and take_error(): engine only.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/interrupt.h"
#include "runtime/controller/message.h"
#include "runtime/execute/host_quick_path.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

class QuickRelay final : public QuickCalls {
 public:
  // The interrupt counts sleeps.
  explicit QuickRelay(Interrupt& interrupt) : interrupt_(interrupt) {}
  // Before any thread can be in a quick path. Both outlive this.
  void open(const SubmitQueue& queue, std::function<void()> wake);

  [[nodiscard]] bool is_over() const override { return queue_->is_closed(); }
  void ask(int process_set, std::uint64_t round, const QuickOp& op) override;
  void note_sleep() override { interrupt_.note_sleep(); }
  // An operation has failed for good: the job ends.
  void fail(const Error& why);

  std::vector<AnswerCall> take();
  std::optional<Error> take_error();

 private:
  Interrupt& interrupt_;
  // constant after open()
  const SubmitQueue* queue_ = nullptr;
  std::function<void()> wake_;
  // guarded by mu_
  std::mutex mu_;
  std::vector<AnswerCall> calls_;
  std::optional<Error> failed_;
};

}  // namespace hvd
