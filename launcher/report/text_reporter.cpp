#include "launcher/report/text_reporter.h"

#include <string_view>

#include "launcher/report/summary.h"
#include "launcher/report/text_grid.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr Duration kWorthTelling = std::chrono::seconds(1);
constexpr std::string_view kOwnWords = "hvdrun: ";

}  // namespace

// A node, or a program that leads to one, may say what a terminal would obey. What ranks print is not shown by this.
Lines TextReporter::on(const JobNews& news) {
  Lines lines = std::visit([this](const auto& each) { return lines_of(each); }, news);
  for (std::string& line : lines) {
    if (line.starts_with(kOwnWords)) {
      line = shown_lines(line);
    }
  }
  return lines;
}

Lines TextReporter::lines_of(const news::NodeProgress& progress) {
  start_.note(progress.node, progress.what);
  return {};
}

Lines TextReporter::lines_of(const news::NodeReady& ready) {
  start_.mark_ready(ready.node);
  return {};
}

// A terminal gets no line, because it has a row for this.
Lines TextReporter::lines_of(const news::SlowStart&) {
  const std::string text = options_.quiet || options_.progress ? "" : start_.text();
  if (text.empty() || text == told_) {
    return {};
  }
  told_ = text;
  return {"hvdrun: " + text};
}

// On a terminal this line replaces the row, if that was there for long enough to be read. Elsewhere it follows the
// lines of a slow start.
Lines TextReporter::lines_of(const news::AllReady& all) {
  if (options_.quiet || (options_.progress ? all.took < kWorthTelling : told_.empty())) {
    return {};
  }
  return {"hvdrun: " + counted(host_count(placement_), "host") + " connected in " + describe_duration(all.took)};
}

std::string TextReporter::status() const {
  const std::string text = options_.quiet || !options_.progress ? "" : start_.text();
  return text.empty() ? "" : "hvdrun: " + shown(text);
}

Lines TextReporter::lines_of(const news::NodeAway& gone) {
  return lines_of(Note{LogLevel::kWarning, gone.node,
                       gone.why.message() + "; trying to reach it again for " + duration_text(gone.patience) +
                           " (--reconnect-timeout)"});
}

Lines TextReporter::lines_of(const news::NodeBack& back) {
  return lines_of(
      Note{LogLevel::kWarning, back.node, "reached again after " + duration_text(back.away) + "; no output was lost"});
}

Lines TextReporter::lines_of(const news::NodeLost& lost) {
  start_.mark_lost(lost.node);
  return {};  // the failure names the node, when it is the cause
}

Lines TextReporter::lines_of(const news::RankRestarted& restarted) {
  return lines_of(Note{LogLevel::kWarning, -1,
                       restarted.cause + "; it is started again (restart " + std::to_string(restarted.number) + " of " +
                           std::to_string(restarted.limit) + ")"});
}

Lines TextReporter::lines_of(const news::AllRestarted& restarted) {
  if (restarted.cause.kind == Cause::Kind::kUnreached) {
    // Why they could not be reached was told as the cause of the start that failed.
    std::string names;
    for (const UnreachedHost& host : restarted.cause.unreached.hosts) {
      add_to_list(names, host.name);
    }
    return lines_of(Note{LogLevel::kWarning, -1, "the job starts without " + (names.empty() ? "this machine" : names)});
  }
  return lines_of(Note{LogLevel::kWarning, -1,
                       "all ranks are started again (restart " + std::to_string(restarted.number) + " of " +
                           std::to_string(restarted.limit) + "): " + restarted.cause.lines.front()});
}

Lines TextReporter::lines_of(const news::GenerationFormed& formed) {
  const Generation& generation = formed.generation;
  std::string text = "generation " + std::to_string(generation.number + 1) + ": " +
                     std::to_string(generation.members.size()) +
                     (generation.members.size() == 1 ? " rank trains" : " ranks train together");
  for (const int rank : generation.newcomers) {
    text += rank == generation.newcomers.front() ? "; new among them: rank " : ", rank ";
    text += std::to_string(rank) + " on " + placement_.node_of(rank).host.name;
  }
  for (const int rank : generation.released) {
    text += rank == generation.released.front() ? "; released: rank " : ", rank ";
    text += std::to_string(rank) + " on " + placement_.node_of(rank).host.name;
  }
  return lines_of(Note{LogLevel::kInfo, -1, text});
}

Lines TextReporter::lines_of(const news::NodeJoining& joining) {
  const NodePlan& node = placement_.nodes[static_cast<std::size_t>(joining.node)];
  return lines_of(Note{LogLevel::kInfo, -1, node.host.name + " joins, with " + ranks_text(node)});
}

Lines TextReporter::lines_of(const Note& note) {
  if (options_.quiet && note.level < LogLevel::kError) {
    return {};
  }
  const std::string who = note.node < 0 ? "" : placement_.nodes[static_cast<std::size_t>(note.node)].host.name + ": ";
  return {"hvdrun: " + who + note.text};
}

Lines TextReporter::lines_of(const news::EngineLine& said) {
  return {said.engine + ": " + said.line};
}

Lines TextReporter::lines_of(const news::Failing& failing) {
  return describe_failing(failing, placement_);
}

Lines TextReporter::lines_of(const Failure& failure) {
  why_ = cause_behind(failure);
  return describe_failure(failure, placement_);
}

Lines TextReporter::lines_of(const news::Refused& refused) {
  return {"hvdrun: " + refused.why.message()};
}

Lines TextReporter::lines_of(const news::Ended& ended) {
  if (options_.quiet && ended.state.exit_code() == 0) {
    return {};
  }
  const std::string end = describe_end(ended, placement_, why_);
  return end.empty() ? Lines{} : Lines{end};
}

}  // namespace hvd::launch
