#include "launcher/run/engine_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "launcher/command/rsh_template.h"

namespace hvd::launch {
namespace {

// When an engine begins to end its agents, hvdrun waits this long for the agent of the failed rank to report why.
constexpr auto kSettleTime = std::chrono::seconds(1);

}  // namespace

void EngineRun::start(std::function<void()> on_over) {
  if (engine_ == nullptr) {
    return;
  }
  job_.log.write(LogLevel::kDebug, "starting: " + shown_words(engine_->command().argv));
  Engine::Handlers handlers;
  handlers.on_line = [this](const std::string& line) { on_line(line); };
  handlers.on_over = [this, on_over = std::move(on_over)](const Error& why) {
    job_.log.write(LogLevel::kDebug, why.message());
    job_.apply(EngineEnded{why});
    on_over();
  };
  if (const auto started = engine_->start(std::move(handlers)); !started.ok()) {
    job_.loop.post([this, why = started.error()] { job_.apply(EngineEnded{why}); });
  }
}

void EngineRun::end() {
  if (engine_ != nullptr) {
    engine_->end();
  }
}

void EngineRun::stop() {
  job_.loop.cancel(std::exchange(settle_timer_, 0));
}

void EngineRun::on_line(const std::string& line) {
  const std::string& name = engine_->command().name;
  if (job_.state.cause() || job_.state.phase() == JobPhase::kDone) {
    job_.log.write(LogLevel::kDebug, name + ": " + line);  // it is about the end that hvdrun itself caused
  } else {
    job_.say(news::EngineLine{name, line});
  }
}

void EngineRun::on_ending(int node, const std::string& why) {
  if (settle_timer_ != 0) {
    return;
  }
  const NodePlan& plan = job_.agent(node);
  const std::string who = "the agent of rank " + std::to_string(plan.ranks.front().rank) + " on " + plan.host.name;
  settle_timer_ = job_.loop.after(kSettleTime, [this, text = who + " was told to end (" + why + ")"] {
    const std::string words = engine_->first_words();
    job_.apply(EngineEnded{
        Error(Code::kLostPeer, text + (words.empty() ? "" : "; " + engine_->command().name + " said: " + words))});
  });
}

void EngineRun::on_start_timeout() {
  const std::vector<std::string> silent = job_.state.silent_hosts();
  const auto others = std::count_if(silent.begin(), silent.end(), [&](const auto& h) { return h != silent.front(); });
  job_.apply(
      EngineEnded{Error(Code::kTimeout, std::to_string(silent.size()) + " of " + std::to_string(job_.placement.size) +
                                            " agents have not called back within --start-timeout, of " +
                                            silent.front() + (others > 0 ? " and other hosts" : ""))});
}

}  // namespace hvd::launch
