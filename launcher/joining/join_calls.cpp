#include "launcher/joining/join_calls.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::launch {
namespace {

// An agent reports after it has looked for GPUs, which takes it 20 s at most.
constexpr auto kReportTime = std::chrono::seconds(60);
// An agent that was refused has nothing to do but to end.
constexpr auto kEndTime = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<JoinCalls>> JoinCalls::listen(EventLoop& loop, std::string path, bool is_local, Log& log) {
  std::unique_ptr<JoinCalls> joins(new JoinCalls(loop, std::move(path), log));
  HVD_TRY_ASSIGN(const DialBackOptions options, DialBackOptions::make(is_local));
  joins->key_ = options.key();
  HVD_TRY_ASSIGN(joins->calls_, DialBack::listen(loop, options, log));
  joins->calls_->take_all([raw = joins.get()] { return raw->take(); });
  return joins;
}

JoinCalls::JoinCalls(EventLoop& loop, std::string path, Log& log) : loop_(loop), path_(std::move(path)), log_(log) {}

JoinCalls::~JoinCalls() {
  if (calls_ != nullptr) {
    stop({});
  }
  for (const auto& [number, caller] : callers_) {
    loop_.cancel(caller.timer);
  }
}

Result<void> JoinCalls::begin(const std::string& job_id, OnCall on_call) {
  HVD_TRY(write_join_file(path_, JoinFile{job_id, HVD_VERSION, calls_->place(), key_}));
  job_id_ = job_id;
  on_call_ = std::move(on_call);
  return {};
}

int JoinCalls::take() {
  const int number = next_number_++;
  HeldAgent::Handlers handlers;
  handlers.on_ready = [this, number] { on_ready(number); };
  handlers.on_lost = [this, number](const Error& why) { drop_later(number, why.message()); };
  Caller& caller = callers_[number];
  caller.agent = std::make_unique<HeldAgent>(loop_, *calls_, number, std::move(handlers));
  caller.timer = loop_.after(kReportTime, [this, number] { drop_later(number, "it has not reported in time"); });
  return number;
}

void JoinCalls::on_ready(int number) {
  loop_.cancel(std::exchange(callers_.at(number).timer, 0));
  // Not from inside its stream's call, since it may be refused at once.
  scope_.post([this, number] {
    if (on_call_ && callers_.contains(number)) {
      on_call_(number);
    }
  });
}

std::size_t JoinCalls::waiting() const {
  return static_cast<std::size_t>(
      std::count_if(callers_.begin(), callers_.end(), [](const auto& caller) { return !caller.second.is_seated; }));
}

void JoinCalls::drop_later(int number, const std::string& why) {
  log_.write(LogLevel::kDebug, "a machine that has called to join is gone: " + why);
  scope_.post([this, number] {
    if (const auto caller = callers_.find(number); caller != callers_.end() && !caller->second.is_seated) {
      loop_.cancel(caller->second.timer);
      callers_.erase(caller);
    }
  });
}

void JoinCalls::seat(int number, int rank) {
  callers_.at(number).is_seated = true;
  number_of_[rank] = number;
}

void JoinCalls::refuse(int number, const ByeMessage& bye) {
  Caller& caller = callers_.at(number);
  if (caller.agent->is_refused()) {
    return;
  }
  caller.agent->refuse(bye);
  loop_.cancel(caller.timer);
  caller.timer = loop_.after(kEndTime, [this, number] {
    callers_.at(number).timer = 0;
    drop_later(number, "it has not ended in time");
  });
}

void JoinCalls::stop(const ByeMessage& bye) {
  if (!job_id_.empty()) {
    remove_join_file(path_, std::exchange(job_id_, ""));
  }
  calls_->stop();
  on_call_ = nullptr;
  for (const auto& [number, caller] : callers_) {
    if (!caller.is_seated) {
      refuse(number, bye);
    }
  }
}

std::unique_ptr<Stream> JoinCalls::open(const NodeTarget& target, StreamSink& sink) {
  const auto found = number_of_.find(target.rank);
  HVD_CHECK(found != number_of_.end());
  return callers_.at(found->second).agent->hand_to(sink);
}

}  // namespace hvd::launch
