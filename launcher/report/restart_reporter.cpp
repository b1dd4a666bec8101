#include "launcher/report/restart_reporter.h"

#include "launcher/report/summary.h"
#include "runtime/base/text.h"

namespace hvd::launch {

Lines RestartReporter::on(const JobNews& news) {
  return std::visit([this](const auto& each) { return lines_of(each); }, news);
}

Lines RestartReporter::lines_of(const news::Begun& begun) {
  Lines lines = inner_->on(begun);
  const int before = std::exchange(memory_.last_size, placement_.size);
  if (before != 0 && before != placement_.size) {
    const Lines told =
        inner_->on(Note{LogLevel::kInfo, -1,
                        "the new start has " + counted(static_cast<std::size_t>(placement_.size), "rank") + " on " +
                            counted(host_count(placement_), "host") + ", the last one had " + std::to_string(before)});
    lines.insert(lines.end(), told.begin(), told.end());
  }
  return lines;
}

Lines RestartReporter::lines_of(const Note& note) {
  // A node may have another number in the next start.
  const bool is_placed = note.node >= 0 && note.node < static_cast<int>(placement_.nodes.size());
  const std::string said =
      (is_placed ? placement_.nodes[static_cast<std::size_t>(note.node)].host.name : std::to_string(note.node)) + ": " +
      note.text;
  said_.insert(said);
  return memory_.said.contains(said) ? Lines() : inner_->on(note);
}

Lines RestartReporter::lines_of(const news::Ended& ended) {
  JobRestarts& restarts = memory_.restarts;
  memory_.said.merge(said_);
  if (restarts.on_ended(placement_, ended.state, clock_.now(), ended.ranks_may_stay)) {
    return inner_->on(news::AllRestarted{*ended.state.cause(), restarts.number(), restarts.limit()});
  }
  return inner_->on(news::Ended{ended.state, clock_.now() - memory_.began, ended.is_before_ranks, restarts.number()});
}

}  // namespace hvd::launch
