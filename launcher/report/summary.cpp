#include "launcher/report/summary.h"

#include <signal.h>

#include <algorithm>
#include <set>

#include "launcher/report/traceback.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// With the lines around these, the report fits on a screen of 25 lines.
constexpr std::ptrdiff_t kQuoted = 14;
// This many lines of a longer traceback are quoted before the gap.
constexpr std::ptrdiff_t kQuotedFirst = 3;

// Returns the lines to quote. That is a Python traceback from its beginning, together with those that it caused,
// without its middle where it is long; otherwise the last few lines. Nothing is quoted that the user has just seen.
std::vector<std::string> worth_quoting(const Failure& failure) {
  const Lines& last_errors = failure.last_errors;
  auto begin = std::find_if(last_errors.begin(), last_errors.end(), [](const std::string& line) {
    // A traceback may begin behind a progress bar. "Fatal Python error:" begins Python's report of a crash, with all
    // its threads.
    return line.ends_with("Traceback (most recent call last):") || line.starts_with("Fatal Python error:");
  });
  if (begin == last_errors.end()) {
    begin -= std::min(kQuoted, std::distance(last_errors.begin(), last_errors.end()));
  }
  if (static_cast<std::size_t>(std::distance(begin, last_errors.end())) <= failure.just_shown) {
    return {};
  }
  const std::ptrdiff_t left_out = std::distance(begin, last_errors.end()) - kQuoted + 1;
  if (left_out <= 1) {
    return {begin, last_errors.end()};
  }
  Lines quoted(begin, begin + kQuotedFirst);
  quoted.push_back("  (" + std::to_string(left_out) + " lines left out)");
  quoted.insert(quoted.end(), begin + kQuotedFirst + left_out, last_errors.end());
  return quoted;
}

// Says whom hvdrun stops now. Ranks that have ended by then are not among them.
std::string stopping_others(std::size_t running, const Placement& placement) {
  const auto others = static_cast<std::size_t>(placement.size) - 1;
  if (running == others) {
    return others == 1 ? "stopping the other rank" : "stopping the other " + counted(others, "rank");
  }
  return running == 1 ? "stopping the rank that still runs"
                      : "stopping the " + counted(running, "rank") + " that still run";
}

Lines as_own_words(Lines lines) {
  for (std::string& line : lines) {
    line.insert(0, "hvdrun: ");
  }
  return lines;
}

// Returns "; 3 other ranks failed because of it, 1 was stopped".
std::string describe_others(const JobState& state) {
  std::size_t followed = 0;
  std::size_t stopped = 0;
  for (std::size_t rank = 0; rank < state.ranks().size(); ++rank) {
    const RankRecord& record = state.ranks()[rank];
    const bool has_failed =
        record.state == RankRecord::State::kEnded && !record.status.is_success() && !record.is_released;
    if (static_cast<int>(rank) != state.cause()->rank && has_failed && record.has_followed) {
      ++followed;
    } else if (static_cast<int>(rank) != state.cause()->rank &&
               (has_failed || record.state == RankRecord::State::kLost)) {
      ++stopped;
    }
  }
  const std::string noun = state.cause()->rank >= 0 ? "other rank" : "rank";
  std::string text = followed == 0 ? "" : "; " + counted(followed, noun) + " failed because of it";
  if (stopped > 0) {
    text += followed == 0 ? "; " + counted(stopped, noun) : ", " + std::to_string(stopped);
    text += stopped == 1 ? " was stopped" : " were stopped";
  }
  return text;
}

std::string describe_restarts(int count) {
  return count == 0 ? "" : ", after " + counted(static_cast<std::size_t>(count), "restart") + " of all ranks";
}

// Returns "; 1 was lost, 2 were released" of the ranks of a job that has succeeded without them.
std::string describe_missing(const RankCounts& counts) {
  std::string text;
  const auto add = [&text](int count, const std::string& what) {
    if (count > 0) {
      add_to_list(text, std::to_string(count) + (count == 1 ? " was " : " were ") + what);
    }
  };
  add(counts.failed, "stopped");
  add(counts.lost, "lost");
  add(counts.not_started, "not started");
  add(counts.released, "released");
  return text.empty() ? "" : "; " + text;
}

std::string memory_hint(const Failure& failure, const std::string& host) {
  const std::string look = "on " + host + " try: dmesg | grep -i 'killed process'";
  if (failure.status.out_of_memory) {
    return "out of memory: " + failure.detail.memory;
  }
  if (!failure.detail.memory.empty()) {
    return "it may have been out of memory: " + failure.detail.memory + "; " + look;
  }
  const bool was_killed = failure.status.kind == ExitStatus::Kind::kSignalled && failure.status.value == SIGKILL;
  const bool was_by_us = failure.was_told;  // hvdrun killed it, because it did not end by itself
  return was_killed && !was_by_us
             ? "what sent the signal is not known; if it was the kernel, for lack of memory, " + look
             : "";
}

// Returns what is known beyond "it exited with code 1".
Lines hints_of(const Failure& failure, const std::string& host) {
  Lines hints;
  if (std::string memory = memory_hint(failure, host); !memory.empty()) {
    hints.push_back(std::move(memory));
  }
  if (!failure.detail.core.empty()) {
    hints.push_back("its core dump was written on " + host + ": " + failure.detail.core);
  }
  if (std::string exception = cause_behind(failure); !exception.empty()) {
    hints.push_back(std::move(exception));
  }
  return hints;
}

}  // namespace

std::string cause_behind(const Failure& failure) {
  const auto traceback = failure.cause.rank >= 0 ? find_traceback(failure.last_errors) : std::nullopt;
  const auto tells_it = [&](const std::string& line) { return line.find(traceback->exception) != std::string::npos; };
  return traceback && std::none_of(failure.cause.lines.begin(), failure.cause.lines.end(), tells_it)
             ? traceback->exception + ", " + traceback->frame
             : "";
}

std::vector<std::string> describe_failure(const Failure& failure, const Placement& placement) {
  const Cause& cause = failure.cause;
  Lines lines = cause.lines;
  if (!cause.hint.empty()) {
    lines.back() += "; " + cause.hint;
  }
  if (cause.rank >= 0) {
    const Lines hints = hints_of(failure, placement.node_of(cause.rank).host.name);
    lines.insert(lines.end(), hints.begin(), hints.end());
  }
  if (const Lines quoted = worth_quoting(failure); !quoted.empty()) {
    lines.emplace_back("the last lines of its standard error:");
    for (const std::string& line : quoted) {
      lines.push_back("  " + line);
    }
  }
  if (!failure.kept_in.empty()) {
    lines.push_back("all that it printed is in " + failure.kept_in);
  }
  if (cause.rank >= 0 && failure.still_running > 0 && !failure.was_told && !failure.is_before_ranks) {
    lines.push_back(stopping_others(failure.still_running, placement));
  }
  return as_own_words(std::move(lines));
}

std::vector<std::string> describe_failing(const news::Failing& failing, const Placement& placement) {
  Lines lines = failing.cause.lines;
  if (failing.still_running > 0) {
    lines.push_back(stopping_others(failing.still_running, placement));
  }
  return as_own_words(std::move(lines));
}

std::string describe_duration(Duration took) {
  return took < std::chrono::minutes(1) ? formatted("%.1f s", std::chrono::duration<double>(took).count())
                                        : minutes_text(took);
}

std::size_t host_count(const Placement& placement) {
  std::set<std::string> names;
  for (const NodePlan& node : placement.nodes) {
    names.insert(node.host.name);
  }
  return names.size();
}

RankCounts count_ranks(const JobState& state) {
  RankCounts counts;
  for (const RankRecord& rank : state.ranks()) {
    if (rank.is_released) {
      ++counts.released;
    } else if (rank.state == RankRecord::State::kEnded) {
      const bool is_good = rank.status.is_success() || (rank.was_let_go && rank.is_server);
      ++(is_good ? counts.succeeded : rank.was_let_go ? counts.released : counts.failed);
    } else {
      ++(rank.state == RankRecord::State::kPending ? counts.not_started : counts.lost);
    }
  }
  return counts;
}

std::string describe_end(const news::Ended& ended, const Placement& placement, const std::string& why) {
  const JobState& state = ended.state;
  if (!state.cause()) {
    const RankCounts counts = count_ranks(state);
    const std::string all = counted(static_cast<std::size_t>(placement.size), "rank");
    const std::string who = counts.succeeded == placement.size ? all : std::to_string(counts.succeeded) + " of " + all;
    return "hvdrun: " + who + " on " + counted(host_count(placement), "node") + " succeeded in " +
           describe_duration(ended.took) + describe_restarts(ended.restarts) + describe_missing(counts) +
           (state.has_kept_all()
                ? ""
                : ", but not all of their output could be kept; exit code " + std::to_string(state.exit_code()));
  }
  const bool any_started = std::any_of(state.ranks().begin(), state.ranks().end(), [](const RankRecord& rank) {
    return rank.state != RankRecord::State::kPending;
  });
  if (!any_started) {
    return "";
  }
  if (ended.is_before_ranks) {
    return "hvdrun: job failed before its processes were started; exit code " + std::to_string(state.exit_code());
  }
  const Cause& cause = *state.cause();
  std::string text = "hvdrun: job failed after " + describe_duration(ended.took) + ": " + cause.lines.front();
  // Only hosts fail several at once; what else has a second line explains the first there.
  if (cause.kind == Cause::Kind::kUnreached && cause.lines.size() > 1) {
    text += " (and " + std::to_string(cause.lines.size() - 1) + " more)";
  }
  text += why.empty() ? "" : " (" + why + ")";
  return text + describe_restarts(ended.restarts) + describe_others(state) + "; exit code " +
         std::to_string(cause.exit_code);
}

}  // namespace hvd::launch
