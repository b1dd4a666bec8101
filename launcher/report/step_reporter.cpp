#include "launcher/report/step_reporter.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <time.h>

#include "runtime/base/fd.h"

namespace hvd::launch {

void StepMemory::say(int node, const std::string& text) {
  if (static_cast<std::size_t>(node) >= files_.size()) {
    return;
  }
  const auto now = static_cast<time_t>(now_());
  tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> stamp{};
  const std::size_t size = ::strftime(stamp.data(), stamp.size(), "%Y/%m/%d %H:%M:%S ", &utc);
  const std::string line = std::string(stamp.data(), size) + text + "\n";
  const std::string& path = files_[static_cast<std::size_t>(node)];
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666));
  if (!file.is_open() || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    failure_ = Error::from_errno("cannot write the node's log " + path).message();
  }
}

std::string StepMemory::failure() {
  if (failure_.empty() || has_told_) {
    return "";
  }
  has_told_ = true;
  return failure_;
}

Lines StepReporter::held(Lines lines) {
  if (!words_.is_silent || has_failed_) {
    return lines;
  }
  held_.insert(held_.end(), lines.begin(), lines.end());
  return {};
}

Lines StepReporter::released() {
  has_failed_ = true;
  return std::exchange(held_, {});
}

Lines StepReporter::on_begin(const std::string& job_id) {
  return held(inner_->on_begin(job_id));
}

Lines StepReporter::on_node_ready(int node, const ReadyMessage& ready) {
  return held(inner_->on_node_ready(node, ready));
}

Lines StepReporter::on_all_ready(Duration took) {
  for (const NodePlan& node : placement_.nodes) {
    memory_.say(node.index, "Executing '" + words_.name + "' on " + node.host.name);
  }
  return held(inner_->on_all_ready(took));
}

Lines StepReporter::on_node_away(int node, const Error& why, Duration patience) {
  memory_.say(node, "The connection to " + host_of(node) + " broke: " + why.message());
  return inner_->on_node_away(node, why, patience);
}

Lines StepReporter::on_node_lost(int node, const Error& why) {
  memory_.note_lost(node);
  memory_.say(node, host_of(node) + " was lost: " + why.message());
  return held(inner_->on_node_lost(node, why));
}

// Each step connects to the nodes again and gets the same notes about it, so repeated ones are dropped.
Lines StepReporter::on_note(const Note& note) {
  return memory_.is_new(std::to_string(note.node) + note.text) ? inner_->on_note(note) : Lines();
}

Lines StepReporter::on_rank_started(int rank, int pid) {
  if (!words_.is_per_node) {
    memory_.say(node_of(rank), "Rank " + std::to_string(rank) + " is process " + std::to_string(pid));
  }
  return held(inner_->on_rank_started(rank, pid));
}

Lines StepReporter::on_rank_ended(int rank, const ExitStatus& status, const ExitDetail& detail) {
  const int node = node_of(rank);
  if (words_.is_per_node) {
    memory_.say(node, "'" + (is_early(status) ? words_.early_name : words_.name) + "' " +
                          (status.is_success() ? "succeeded on " : "failed (" + status.text() + ") on ") +
                          host_of(node));
  } else {
    memory_.say(node, "Rank " + std::to_string(rank) + " " + status.text());
  }
  Lines lines = held(inner_->on_rank_ended(rank, status, detail));
  if (const std::string failure = memory_.failure(); !failure.empty()) {
    const Lines told = inner_->on_note({LogLevel::kError, -1, failure + "; the job goes on"});
    lines.insert(lines.end(), told.begin(), told.end());
  }
  return lines;
}

Lines StepReporter::on_failing(const Cause& cause) {
  if (words_.is_per_node) {
    return {};
  }
  Lines lines = released();
  const Lines said = inner_->on_failing(cause);
  lines.insert(lines.end(), said.begin(), said.end());
  return lines;
}

Lines StepReporter::on_failure(const Failure& failure) {
  Lines lines = released();
  Failure told = failure;
  const int rank = failure.cause.rank;
  if (rank >= 0) {
    memory_.say(node_of(rank), "Output:");
    for (const std::string& line : failure.last_errors) {
      memory_.say(node_of(rank), ">>>   " + line);
    }
  }
  if (rank >= 0 && words_.is_per_node) {
    const std::string& code = is_early(failure.status) ? words_.early_code : words_.failed_code;
    const std::string& name = is_early(failure.status) ? words_.early_name : words_.name;
    told.cause.lines = {code + (code.empty() ? "" : ": ") + name + " on " + host_of(node_of(rank)) + " " +
                        failure.status.text()};
  }
  Lines said = inner_->on_failure(told);
  if (words_.is_per_node) {
    std::erase_if(said, [](const std::string& line) { return line.starts_with("hvdrun: stopping the other "); });
  }
  lines.insert(lines.end(), said.begin(), said.end());
  return lines;
}

Lines StepReporter::on_end(const JobState& state, Duration took) {
  for (const NodePlan& node : placement_.nodes) {
    if (!words_.is_per_node) {
      memory_.say(node.index, "'" + words_.name + "' " + (state.cause() ? "failed" : "succeeded") + " with exit code " +
                                  std::to_string(state.exit_code()));
    }
  }
  Lines lines = held(inner_->on_end(state, took));
  for (std::string& line : lines) {
    if (words_.is_per_node && line.starts_with("hvdrun: job failed after ")) {
      line = "hvdrun: job failed before its processes were started; exit code " + std::to_string(state.exit_code());
    }
  }
  return lines;
}

}  // namespace hvd::launch
