#include "launcher/offers/discovery_script.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/job/text_file.h"
#include "launcher/offers/offered_hosts.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostOutput = 1U << 20U;
constexpr std::size_t kMostErrors = 4U << 10U;

// Returns the last line that is not empty, which mostly says why a program failed.
std::string last_line(std::string_view text) {
  text = trimmed(text);
  const auto begin = text.find_last_of('\n');
  return shown_text(begin == std::string_view::npos ? text : text.substr(begin + 1));
}

// Returns the first line that is not empty.
std::string first_line(std::string_view text) {
  text = trimmed(text);
  return shown_text(take_until(text, '\n'));
}

}  // namespace

DiscoveryScript::DiscoveryScript(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

DiscoveryScript::~DiscoveryScript() {
  stop();
}

void DiscoveryScript::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  run_timer_ = loop_.after(Duration::zero(), [this] { run(); });
}

void DiscoveryScript::stop() {
  is_stopped_ = true;
  loop_.cancel(std::exchange(run_timer_, 0));
  loop_.cancel(std::exchange(late_timer_, 0));
  child_.reset();
}

void DiscoveryScript::run() {
  run_timer_ = 0;
  output_.clear();
  errors_.clear();
  is_late_ = false;
  SpawnOptions program;
  program.argv = {"/bin/sh", "-c", options_.command};
  program.environment = options_.environment;
  program.cwd = options_.cwd;
  Child::Options options;
  options.end_time = options_.longest_run;
  Child::Handlers handlers;
  handlers.on_output = [this](Child::Stream stream, std::string_view bytes) {
    std::string& text = stream == Child::Stream::kErrors ? errors_ : output_;
    const std::size_t most = stream == Child::Stream::kErrors ? kMostErrors : kMostOutput + 1;
    text.append(bytes.substr(0, most - std::min(most, text.size())));
  };
  handlers.on_over = [this](const std::optional<ExitStatus>& status, const std::string& how) { on_over(status, how); };
  auto started = Child::start(loop_, std::move(program), options, std::move(handlers));
  if (!started.ok()) {
    tell("the host discovery script cannot be run: " + started.error().message());
    return run_later();
  }
  child_ = std::move(started).value();
  late_timer_ = loop_.after(options_.longest_run, [this] {
    late_timer_ = 0;
    is_late_ = !child_->has_exited();  // else a process that it left behind holds its output, for a moment more
    child_->signal(SIGKILL);
  });
}

void DiscoveryScript::on_over(const std::optional<ExitStatus>& status, const std::string& how) {
  loop_.cancel(std::exchange(late_timer_, 0));
  child_.reset();
  if (is_late_) {
    fail("the host discovery script has not ended within " + duration_text(options_.longest_run) + ", and was killed");
  } else if (!status || !status->is_success()) {
    const std::string error = last_line(errors_);
    const std::string said = error.empty() ? first_line(output_) : error;
    fail("the host discovery script " + how + (said.empty() ? "" : ": " + said));
  } else if (output_.size() > kMostOutput) {
    fail("the host discovery script prints more than 1 MiB");
  } else {
    take(output_);
  }
  run_later();
}

void DiscoveryScript::take(std::string_view printed) {
  auto offered = parse_offered_hosts(printed, options_.slots, "the host discovery script");
  if (!offered.ok()) {
    return fail(offered.error().message());
  }
  if (!is_stopped_ && known_ != offered.value().hosts) {
    known_ = offered.value().hosts;
    handlers_.on_hosts(*known_);
  }
  // After the hosts: before any are known, trouble ends the start.
  if (offered.value().notes.empty()) {
    told_.clear();
  } else {
    tell(offered.value().notes.front());
  }
}

void DiscoveryScript::fail(const std::string& why) {
  tell(with_outcome(why, known_ || handlers_.has_hosts));
}

void DiscoveryScript::tell(const std::string& why) {
  if (!is_stopped_ && std::exchange(told_, why) != why) {
    handlers_.on_trouble(why);
  }
}

void DiscoveryScript::run_later() {
  if (!is_stopped_) {
    run_timer_ = loop_.after(options_.interval, [this] { run(); });
  }
}

}  // namespace hvd::launch
