#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "launcher/check/check_runner.h"
#include "launcher/check/findings.h"
#include "launcher/logs/live_rows.h"
#include "launcher/logs/spdlog_log.h"
#include "launcher/placement/placement.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/report/check_json.h"
#include "launcher/report/check_text.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/own_transports.h"
#include "launcher/steps/step_tree.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/fd.h"
#include "runtime/base/open_files.h"
#include "runtime/io/event_loop.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

constexpr std::size_t kLeastWidth = 40;
constexpr std::size_t kMostWidth = 120;  // longer lines are hard to read
constexpr std::size_t kFileWidth = 100;

// Returns the columns of the terminal at `fd`; 0: it is none.
std::size_t columns_of(int fd) {
  winsize size{};
  return ::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// StatusRow shows what is being done in the last row of a terminal at standard error. Other lines go above it, and it
// is removed at the end.
class StatusRow {
 public:
  explicit StatusRow(bool is_shown) : is_shown_(is_shown) {}

  void show(const std::string& status) {
    if (!is_shown_) {
      return;
    }
    const std::size_t columns = columns_of(STDERR_FILENO);  // 0: unknown
    const std::size_t room = (columns == 0 ? kLeastWidth : std::max<std::size_t>(columns, 2)) - 1;
    row_ = status.empty() ? "" : fit_row("hvdrun: " + status, room);
    static_cast<void>(write_all(STDERR_FILENO, "\r\x1b[K" + row_));
  }
  void say(std::string_view line) {
    static_cast<void>(write_all(STDERR_FILENO, (is_shown_ ? "\r\x1b[K" : "") + std::string(line) + "\n" + row_));
  }

 private:
  const bool is_shown_;
  std::string row_;
};

std::string text_of(const CheckResult& result, const CliOptions& options) {
  const auto findings = find_problems(result);
  if (options.json) {
    return check_json(result, findings) + "\n";
  }
  const std::size_t columns = columns_of(STDOUT_FILENO);
  CheckTextOptions text;
  text.width = columns == 0 ? kFileWidth : std::clamp(columns, kLeastWidth, kMostWidth);
  text.color = options.job.color[0];
  text.only_findings = options.job.quiet;
  std::string lines;
  for (const std::string& line : check_text(result, findings, text)) {
    lines += line + "\n";
  }
  return lines;
}

// A check reaches all hosts directly, each over one connection or a command with three pipes.
Result<void> allow_files_for(const Placement& placement) {
  constexpr std::uint64_t kOwn = 32;
  constexpr std::uint64_t kHost = 4;
  const auto allowed = allow_open_files(kOwn + kHost * placement.nodes.size());
  return allowed.ok()
             ? allowed
             : Result<void>(Error(allowed.error().code(),
                                  "for " + std::to_string(placement.nodes.size()) +
                                      (placement.nodes.size() == 1 ? " host " : " hosts ") + allowed.error().message() +
                                      "; raise nofile in /etc/security/limits.conf, or check fewer at once"));
}

// Reads the files that --sync would bring, as a job would. Nothing: it brings none, as where all hosts are this
// machine.
Result<std::optional<Tree>> find_tree(const JobSpec& job, const Placement& placement) {
  const bool is_all_here = std::all_of(placement.nodes.begin(), placement.nodes.end(),
                                       [](const NodePlan& plan) { return is_here(plan.host); });
  return is_all_here ? std::optional<Tree>() : tree_of(job);
}

// Returns the program or the script that the command line names in the folder, if --sync would not bring it.
std::string find_not_in_folder(const Tree& tree, const JobSpec& job, const CheckResult& result) {
  std::vector<std::string> names;
  if (!job.argv.empty() && job.argv.front().find('/') != std::string::npos) {
    names.push_back(job.argv.front());
  }
  for (const CheckedHost& host : result.hosts) {
    if (host.software && !host.software->script.empty()) {
      names.push_back(host.software->script);
    }
  }
  const auto lacking = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return name.front() != '/' && !would_bring(tree, job.cwd, name);
  });
  return lacking == names.end() ? "" : *lacking;
}

int written_or_why(std::string_view text, int code) {
  if (write_all(STDOUT_FILENO, text)) {
    return code;
  }
  if (errno == EPIPE) {
    return exit_code::kReaderGone;
  }
  std::perror("hvdrun: what was found could not be written");
  return exit_code::kOutputFailed;
}

}  // namespace

Result<int> check_hosts(const CliOptions& options) {
  JobSpec job = options.job;
  // hvdrun starts the agents itself: mpirun would start one for each rank, and none where mpirun fails.
  const bool wants_mpirun = job.launcher == LauncherKind::kMpi;
  job.launcher = LauncherKind::kOwn;
  HVD_TRY_ASSIGN(const Placement placement, place(job.hosts, job.size));
  HVD_TRY(allow_files_for(placement));
  HVD_TRY_ASSIGN(const std::optional<Tree> tree, find_tree(job, placement));
  ::signal(SIGPIPE, SIG_IGN);
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  CheckRunner* runner = nullptr;
  // Do this first: it blocks the signals before any thread exists that could receive them.
  HVD_TRY(loop->watch_signals(without_ignored({SIGINT, SIGTERM, SIGHUP}), [&runner](int signo) {
    if (runner != nullptr) {
      runner->on_signal(signo);
    }
  }));
  StatusRow row(job.live && !job.quiet && !options.json && ::isatty(STDERR_FILENO) == 1);
  const LogLevel lowest = job.verbose ? LogLevel::kDebug : LogLevel::kWarning;
  const std::unique_ptr<Log> log =
      make_spdlog_log(lowest, [&row, &loop, thread = std::this_thread::get_id()](std::string_view line) {
        if (std::this_thread::get_id() == thread) {
          row.say(line);
        } else {
          loop->post([&row, line = std::string(line)] { row.say(line); });
        }
      });
  HVD_TRY_ASSIGN(const OwnTransports own, make_own_transports(*loop, job, *log));
  const Transports transports{own.local.get(), own.ssh.get(), own.rsh.get(), nullptr, nullptr};
  CheckSink sink;
  sink.on_status = [&row](const std::string& status) { row.show(status); };
  CheckRunner owner(*loop, job, placement, transports, wants_mpirun, std::move(sink), *log);
  runner = &owner;
  auto result = owner.run();
  runner = nullptr;
  if (!result.ok()) {
    return result.error();
  }
  if (tree) {
    result.value().not_in_folder = find_not_in_folder(*tree, job, result.value());
  }
  return written_or_why(text_of(result.value(), options), exit_code_of(result.value(), find_problems(result.value())));
}

}  // namespace hvd::cli
