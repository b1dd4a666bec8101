#include "launcher/state/job_state.h"

#include <iterator>
#include <utility>

namespace hvd::launch {

JobState::JobState(const Placement& placement, const std::vector<int>& servers, int restart_limit, Duration grace,
                   int least)
    : job_(placement, servers, grace),
      end_(job_),
      changes_(job_, end_, restart_limit, least),
      failure_(job_, end_, changes_),
      nodes_(job_, end_, changes_),
      ranks_(job_, end_, changes_, failure_) {}

JobActions JobState::on(const JobEvent& event) {
  if (job_.phase == JobPhase::kDone) {
    end_.note_late(event);
    return {};
  }
  JobActions actions = std::visit([this](const auto& each) { return handle(each); }, event);
  if (job_.phase == JobPhase::kDone && job_.is_awaiting_end) {
    job_.is_awaiting_end = false;  // how the rank ended will never be known
    JobActions with_report;
    with_report.emplace_back(ReportCause{});
    std::move(actions.begin(), actions.end(), std::back_inserter(with_report));
    return with_report;
  }
  return actions;
}

std::size_t JobState::running_besides(int rank) const {
  const auto has_ended = [](const RankRecord& record) {
    return record.state == RankRecord::State::kEnded || record.state == RankRecord::State::kLost;
  };
  std::size_t count = 0;
  for (std::size_t other = 0; other < job_.ranks.size(); ++other) {
    if (static_cast<int>(other) != rank && !has_ended(job_.ranks[other])) {
      ++count;
    }
  }
  return count;
}

template <typename Event>
JobActions JobState::handle(const Event& event) {
  if constexpr (requires { end_.handle(event); }) {
    return end_.handle(event);
  } else if constexpr (requires { changes_.handle(event); }) {
    return changes_.handle(event);
  } else if constexpr (requires { failure_.handle(event); }) {
    return failure_.handle(event);
  } else if constexpr (requires { nodes_.handle(event); }) {
    return nodes_.handle(event);
  } else {
    return ranks_.handle(event);
  }
}

}  // namespace hvd::launch
