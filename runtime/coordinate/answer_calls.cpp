#include "runtime/coordinate/answer_calls.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "runtime/coordinate/coordinator.h"

namespace hvd {
namespace {

// Leaders call every 100 ms, so that a call which comes a little early is not passed on twice.
constexpr Duration kPassOnEvery = std::chrono::milliseconds(80);
// A leader that has not called for so long does not wait any more.
constexpr Duration kLasts = std::chrono::seconds(2);
// Serials of rounds, apart from those of tensors.
constexpr std::uint64_t kRounds = std::uint64_t{1} << 63U;

}  // namespace

bool AnswerCalls::note(int rank, const AnswerCall& call, TimePoint now) {
  drop_old(now);
  const auto [found, is_new] = calls_.try_emplace(std::pair(call.process_set, call.round));
  Called& called = found->second;
  called.last_by_rank[rank] = now;
  if (is_new) {
    called.what = std::string(name_of(call.kind)) + " '" + call.name + "'";
  } else if (now - called.passed_on < kPassOnEvery) {
    return false;
  }
  called.passed_on = now;
  return true;
}

void AnswerCalls::drop_old(TimePoint now) {
  for (auto call = calls_.begin(); call != calls_.end();) {
    std::erase_if(call->second.last_by_rank, [&](const auto& last) { return now - last.second > kLasts; });
    call = call->second.last_by_rank.empty() ? calls_.erase(call) : std::next(call);
  }
}

bool AnswerCalls::has_any(TimePoint now) {
  drop_old(now);
  return !calls_.empty();
}

std::vector<int> AnswerCalls::leaders_among(const std::vector<int>& ranks) const {
  std::vector<int> leaders;
  for (const int rank : ranks) {
    if (leaders.empty() || node_of(leaders.back()) != node_of(rank)) {
      leaders.push_back(rank);
    }
  }
  return leaders;
}

void AnswerCalls::add_to(std::vector<Incomplete>& incomplete, const Coordinator& coordinator, TimePoint now) {
  drop_old(now);
  for (const auto& entry : calls_) {
    const int process_set = entry.first.first;
    const Called& called = entry.second;
    std::set<int> waiting;  // nodes, all of whose ranks of the set wait with their leader
    for (const auto& last : called.last_by_rank) {
      waiting.insert(node_of(last.first));
    }
    const auto same = std::find_if(incomplete.begin(), incomplete.end(), [&](const Incomplete& one) {
      return one.process_set == process_set && one.what == called.what;
    });
    const bool is_asked = same != incomplete.end();
    const std::vector<int>& candidates = is_asked ? same->missing : coordinator.ranks_of(process_set);
    std::vector<int> missing;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(missing),
                 [&](int rank) { return !waiting.contains(node_of(rank)); });
    if (missing.empty()) {
      continue;  // all have come by now
    }
    if (is_asked) {
      same->missing = std::move(missing);
    } else {
      incomplete.push_back({kRounds | entry.first.second, process_set, called.what, std::move(missing)});
    }
  }
}

}  // namespace hvd
