#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/live/live_jobs.h"
#include "launcher/process/other_process.h"
#include "launcher/state/exit_codes.h"
#include "launcher/status/top_text.h"
#include "runtime/base/fd.h"

namespace hvd::cli {
namespace {

using launch::JobPicture;

// A job says something every second.
constexpr auto kAnswerTime = std::chrono::seconds(10);
// A job that is started anew may wait for hosts.
constexpr auto kLongestPause = std::chrono::minutes(10);
constexpr std::size_t kUsualWidth = 120;

// TopScreen draws the rows over those before on a terminal, and one below the other elsewhere.
class TopScreen {
 public:
  explicit TopScreen(const TopOptions& options)
      : options_(options), is_redrawn_(options.is_terminal && !options.once && !options.json) {}

  void show(const JobPicture& job) {
    if (options_.json) {
      std::cout << top_json(job) << "\n" << std::flush;
      return;
    }
    winsize size{};
    const bool is_known = options_.is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    std::vector<std::string> lines =
        top_lines(job, is_known ? static_cast<std::size_t>(size.ws_col) : kUsualWidth, options_.color);
    const bool is_cut = is_redrawn_ && is_known && size.ws_row > 2 && lines.size() >= size.ws_row;
    if (is_cut) {
      lines.resize(static_cast<std::size_t>(size.ws_row) - 2);
      lines.emplace_back("...");
    }
    std::string text;
    if (is_redrawn_ && drawn_ > 0) {
      text = "\x1b[" + std::to_string(drawn_) + "A\r\x1b[J";
    } else if (!is_redrawn_ && drawn_ > 0) {
      text = "\n";
    }
    for (const std::string& line : lines) {
      text += line + "\n";
    }
    drawn_ = lines.size();
    std::cout << text << std::flush;
  }

 private:
  const TopOptions& options_;
  const bool is_redrawn_;
  std::size_t drawn_ = 0;
};

// Waits for the next step of a job. Whoever follows the job is told why nothing is shown.
Result<std::optional<launch::FoundJob>> await_next_step(const launch::FoundJob& job, const Fd& hvdrun, bool once) {
  auto again = find_again(job, hvdrun, kAnswerTime);
  if (once || again.ok() || again.error().code() != Code::kTimeout) {
    return again;
  }
  std::cerr << "hvdrun: " << again.error().message() << "\n";
  return find_again(job, hvdrun, kLongestPause);
}

}  // namespace

Result<int> show_top(const TopOptions& options) {
  HVD_TRY_ASSIGN(launch::FoundJob found, find_running_job(options.job));
  const std::string id = found.job.id;
  HVD_TRY_ASSIGN(launch::LiveAnswer answer, launch::LiveAnswer::ask(found.socket, launch::LiveMessage::kAskStatus, ""));
  Fd hvdrun;  // not open: it is of another pid namespace, and its number means nothing here
  if (answer.pid() == found.job.pid) {
    HVD_TRY_ASSIGN(hvdrun, launch::open_process(found.job.pid));
  }
  TopScreen screen(options);
  for (bool has_shown = false;; has_shown = true) {
    auto part = answer.next(Deadline::after(kAnswerTime));
    if (!part.ok()) {
      const bool is_gone = part.error().code() == Code::kLostPeer;
      std::optional<launch::FoundJob> again;
      if (is_gone && hvdrun.is_open()) {
        HVD_TRY_ASSIGN(again, await_next_step(found, hvdrun, options.once));
      }
      if (again) {
        found = *std::move(again);
        // A short step may be over by now; then the old answer is at its end still, and the next one is looked for.
        if (auto asked = launch::LiveAnswer::ask(found.socket, launch::LiveMessage::kAskStatus, ""); asked.ok()) {
          answer = std::move(asked).value();
        }
        continue;
      }
      if (is_gone && has_shown) {
        std::cerr << "hvdrun: job " << id << " has ended\n";
        return 0;
      }
      return Error(is_gone ? Code::kNotFound : part.error().code(), "top: " + part.error().message());
    }
    if (!part.value()) {
      return 0;
    }
    HVD_TRY_ASSIGN(const JobPicture job, JobPicture::decode(part.value()->body));
    screen.show(job);
    if (options.once) {
      return 0;
    }
    if (!std::cout) {
      return launch::exit_code::kOutputFailed;
    }
  }
}

}  // namespace hvd::cli
