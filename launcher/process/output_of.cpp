#include "launcher/process/output_of.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "launcher/process/child.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostQuoted = 300;

// Returns the last line that is not empty, without control characters, and its end if it is long.
std::string last_line(const std::string& output) {
  const std::size_t end = output.find_last_not_of(" \r\n\t");
  if (end == std::string::npos) {
    return "";
  }
  const std::size_t before = output.rfind('\n', end);
  std::string line = output.substr(before == std::string::npos ? 0 : before + 1,
                                   end - (before == std::string::npos ? 0 : before + 1) + 1);
  line.erase(0, line.size() - std::min(line.size(), kMostQuoted));
  std::replace_if(line.begin(), line.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return line;
}

}  // namespace

Result<std::string> output_of(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                              Deadline deadline, OutputOptions wanted) {
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  SpawnOptions program;
  program.argv = argv;
  program.environment = environment;
  Child::Options options;
  options.joins_errors = wanted.has_errors;
  std::string output;
  std::string errors;
  std::optional<ExitStatus> status;
  Child::Handlers handlers;
  handlers.on_output = [&](Child::Stream stream, std::string_view text) {
    (stream == Child::Stream::kErrors ? errors : output) += text;
  };
  handlers.on_over = [&status](const std::optional<ExitStatus>& ended, const std::string&) { status = ended; };
  HVD_TRY_ASSIGN(const std::unique_ptr<Child> child,
                 Child::start(*loop, std::move(program), options, std::move(handlers)));
  while (!status && output.size() + errors.size() < wanted.most && !deadline.has_passed()) {
    HVD_TRY(loop->turn(deadline));
  }
  if (!status && output.size() + errors.size() >= wanted.most) {
    return Error(Code::kResource, "'" + argv.front() + "' has printed more than " + std::to_string(wanted.most >> 20U) +
                                      " MiB and was stopped");
  }
  if (!status) {
    return Error(Code::kTimeout, "'" + argv.front() + "' has not ended in time");
  }
  if (!status->is_success()) {
    const std::string words = last_line(wanted.has_errors ? output : errors);
    const Code code = status->kind == ExitStatus::Kind::kSignalled ? Code::kCancelled : Code::kSystem;
    return Error(code, "'" + argv.front() + "' " + status->text() + (words.empty() ? "" : ": " + words));
  }
  return output;
}

}  // namespace hvd::launch
