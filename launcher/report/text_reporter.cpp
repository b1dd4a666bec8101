#include "launcher/report/text_reporter.h"

#include "launcher/report/summary.h"
#include "runtime/base/duration_text.h"

namespace hvd::launch {
namespace {

constexpr Duration kWorthTelling = std::chrono::seconds(1);

}  // namespace

Lines TextReporter::on_begin(const std::string&) {
  return {};
}

Lines TextReporter::on_node_progress(int node, const std::string& what) {
  start_.note(node, what);
  return {};
}

Lines TextReporter::on_node_ready(int node, const ReadyMessage&) {
  start_.mark_ready(node);
  return {};
}

// A terminal gets no line, because it has a row for this.
Lines TextReporter::on_slow_start() {
  const std::string text = options_.quiet || options_.progress ? "" : start_.text();
  if (text.empty() || text == told_) {
    return {};
  }
  told_ = text;
  return {"hvdrun: " + text};
}

// On a terminal this line replaces the row, if that was there for long enough to be read. Elsewhere it follows the
// lines of a slow start.
Lines TextReporter::on_all_ready(Duration took) {
  if (options_.quiet || (options_.progress ? took < kWorthTelling : told_.empty())) {
    return {};
  }
  const std::size_t hosts = host_count(placement_);
  return {"hvdrun: " + std::to_string(hosts) + (hosts == 1 ? " host" : " hosts") + " connected in " +
          describe_duration(took)};
}

std::string TextReporter::status() const {
  const std::string text = options_.quiet || !options_.progress ? "" : start_.text();
  return text.empty() ? "" : "hvdrun: " + text;
}

Lines TextReporter::on_node_away(int node, const Error& why, Duration patience) {
  return on_note(
      {LogLevel::kWarning, node,
       why.message() + "; trying to reach it again for " + duration_text(patience) + " (--reconnect-timeout)"});
}

Lines TextReporter::on_node_back(int node, Duration away) {
  return on_note({LogLevel::kWarning, node, "reached again after " + duration_text(away) + "; no output was lost"});
}

Lines TextReporter::on_node_lost(int node, const Error&) {
  start_.mark_lost(node);
  return {};  // the failure names the node, when it is the cause
}

Lines TextReporter::on_rank_started(int, int) {
  return {};
}

Lines TextReporter::on_rank_ended(int, const ExitStatus&, const ExitDetail&) {
  return {};
}

Lines TextReporter::on_rank_restarted(int, const std::string& cause, int number, int limit) {
  return on_note(
      {LogLevel::kWarning, -1,
       cause + "; it is started anew (restart " + std::to_string(number) + " of " + std::to_string(limit) + ")"});
}

Lines TextReporter::on_note(const Note& note) {
  if (options_.quiet && note.level < LogLevel::kError) {
    return {};
  }
  const std::string who = note.node < 0 ? "" : placement_.nodes[static_cast<std::size_t>(note.node)].host.name + ": ";
  return {"hvdrun: " + who + note.text};
}

Lines TextReporter::on_engine_line(const std::string& engine, const std::string& line) {
  return {engine + ": " + line};
}

Lines TextReporter::on_failing(const Cause& cause) {
  return describe_failing(cause, placement_);
}

Lines TextReporter::on_failure(const Failure& failure) {
  return describe_failure(failure, placement_);
}

Lines TextReporter::on_refused(const Error& why, int) {
  return {"hvdrun: " + why.message()};
}

Lines TextReporter::on_end(const JobState& state, Duration took) {
  if (options_.quiet && state.exit_code() == 0) {
    return {};
  }
  const std::string end = describe_end(state, placement_, took);
  return end.empty() ? Lines{} : Lines{end};
}

}  // namespace hvd::launch
