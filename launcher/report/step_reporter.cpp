#include "launcher/report/step_reporter.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <time.h>

#include "launcher/job/hidden_texts.h"
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
  const std::string line = std::string(stamp.data(), size) + masked(text, hidden_) + "\n";
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

Lines StepReporter::on(const JobNews& news) {
  return std::visit([this](const auto& each) { return lines_of(each); }, news);
}

Lines StepReporter::lines_of(const news::AllReady& all) {
  say_to_each([this](const std::string& host) { return "Executing '" + words_.name + "' on " + host; });
  return held(inner_->on(all));
}

void StepReporter::say_to_each(const std::function<std::string(const std::string& host)>& text) {
  std::set<int> told;
  for (const NodePlan& agent : agents_.nodes) {
    if (const int node = node_at(agent.index); told.insert(node).second) {
      memory_.say(node, text(agent.host.name));
    }
  }
}

Lines StepReporter::lines_of(const news::NodeAway& gone) {
  memory_.say(node_at(gone.node), "The connection to " + host_of(gone.node) + " broke: " + gone.why.message());
  return inner_->on(gone);
}

Lines StepReporter::lines_of(const news::NodeLost& lost) {
  memory_.note_lost(node_at(lost.node));
  memory_.say(node_at(lost.node), host_of(lost.node) + " was lost: " + lost.why.message());
  return held(inner_->on(lost));
}

Lines StepReporter::lines_of(const news::GenerationFormed& formed) {
  for (const int rank : formed.generation.released) {
    memory_.note_left(node_of(rank));
  }
  return inner_->on(formed);
}

// Each step connects to the nodes again and gets the same notes about it, so those of an earlier step are dropped.
Lines StepReporter::lines_of(const Note& note) {
  const std::string text = std::to_string(note.node) + note.text;
  notes_.insert(text);
  return memory_.is_new(text) ? inner_->on(note) : Lines();
}

Lines StepReporter::lines_of(const news::RankStarted& started) {
  if (!words_.is_per_node) {
    memory_.note_begun();
    memory_.say(node_of(started.rank),
                "Rank " + std::to_string(started.rank) + " is process " + std::to_string(started.pid));
  }
  return held(inner_->on(started));
}

Lines StepReporter::lines_of(const news::RankEnded& ended) {
  const int node = node_of(ended.rank);
  if (words_.is_per_node) {
    memory_.say(node, "'" + (is_early(ended.status) ? words_.early_name : words_.name) + "' " +
                          (ended.status.is_success() ? "succeeded on " : "failed (" + ended.status.text() + ") on ") +
                          host_of(agent_of(ended.rank)));
  } else {
    memory_.say(node, "Rank " + std::to_string(ended.rank) + " " + ended.status.text());
  }
  Lines lines = held(inner_->on(ended));
  if (const std::string failure = memory_.failure(); !failure.empty()) {
    const Lines told = inner_->on(Note{LogLevel::kError, -1, failure + "; the job goes on"});
    lines.insert(lines.end(), told.begin(), told.end());
  }
  return lines;
}

Lines StepReporter::lines_of(const news::Failing& failing) {
  if (words_.is_per_node) {
    return {};
  }
  Lines lines = released();
  const Lines said = inner_->on(failing);
  lines.insert(lines.end(), said.begin(), said.end());
  return lines;
}

Lines StepReporter::lines_of(const Failure& failure) {
  Lines lines = released();
  Failure told = failure;
  told.is_before_ranks = words_.is_per_node;
  memory_.note_unreached(failure.cause.unreached);
  if (failure.cause.kind == Cause::Kind::kInterrupted) {
    memory_.note_interrupted();
  }
  const int rank = failure.cause.rank;
  memory_.note_failed_rank(rank >= 0);
  if (rank >= 0) {
    memory_.say(node_of(rank), "Output:");
    for (const std::string& line : failure.last_errors) {
      memory_.say(node_of(rank), ">>>   " + line);
    }
  }
  if (rank >= 0 && words_.is_per_node) {
    const std::string& code = is_early(failure.status) ? words_.early_code : words_.failed_code;
    const std::string& name = is_early(failure.status) ? words_.early_name : words_.name;
    told.cause.lines = {code + (code.empty() ? "" : ": ") + name + " on " + host_of(agent_of(rank)) + " " +
                        failure.status.text()};
  }
  const Lines said = inner_->on(told);
  lines.insert(lines.end(), said.begin(), said.end());
  return lines;
}

Lines StepReporter::lines_of(const news::Ended& ended) {
  // A node that has not said in time that its ranks have ended is lost, and no news said so.
  for (const int agent : ready_) {
    if (ended.state.is_lost(agent)) {
      memory_.note_lost(node_at(agent));
    }
  }
  if (!words_.is_per_node) {
    say_to_each([&](const std::string& /*host*/) {
      return "'" + words_.name + "' " + (ended.state.cause() ? "failed" : "succeeded") + " with exit code " +
             std::to_string(ended.state.exit_code());
    });
  }
  return held(inner_->on(news::Ended{ended.state, ended.took, words_.is_per_node}));
}

}  // namespace hvd::launch
