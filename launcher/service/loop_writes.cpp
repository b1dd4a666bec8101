#include "launcher/service/loop_writes.h"

#include <chrono>
#include <utility>

#include "launcher/service/database.h"

namespace hvd::launch {
namespace {

constexpr auto kRetryAfter = std::chrono::seconds(1);

}  // namespace

void LoopWrites::begin() {
  store_.set_patience(Duration::zero());
}

void LoopWrites::retry_on(EventLoop& loop) {
  loop_ = &loop;
  is_to_retry_ = false;
  write_or_retry();
}

void LoopWrites::set_output(std::string directory, std::vector<std::string> rank_files) {
  output_ = Output{std::move(directory), std::move(rank_files)};
  write_or_retry();
}

void LoopWrites::set_addresses(std::vector<JobNode> known, bool has_logged_in) {
  addresses_ = std::move(known);
  has_logged_in_ = has_logged_in;
  write_or_retry();
}

Result<void> LoopWrites::end() {
  loop_ = nullptr;
  store_.set_patience(Database::kPatience);
  return write();
}

Result<void> LoopWrites::write() {
  if (output_) {
    HVD_TRY(store_.set_output(job_, output_->directory, output_->rank_files));
    output_.reset();
  }
  if (!addresses_.empty()) {
    HVD_TRY(store_.set_addresses(job_, addresses_, has_logged_in_));
    addresses_.clear();
  }
  return {};
}

void LoopWrites::write_or_retry() {
  if (write().ok() || loop_ == nullptr || std::exchange(is_to_retry_, true)) {
    return;
  }
  loop_->after(kRetryAfter, [this] {
    is_to_retry_ = false;
    write_or_retry();
  });
}

}  // namespace hvd::launch
