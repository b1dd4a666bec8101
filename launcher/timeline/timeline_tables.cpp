#include "launcher/timeline/timeline_tables.h"

#include <algorithm>
#include <vector>

#include "launcher/report/listing.h"
#include "launcher/report/quantities.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// "812 us", "12.3 ms", "2.1 s".
std::string short_time_text(double seconds) {
  const double number = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
  const char* const unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
  return formatted(number < 100 && number > 0 ? "%.1f %s" : "%.0f %s", number, unit);
}

std::string percent_text(double part, double whole) {
  return formatted("%.0f %%", whole > 0 ? 100 * part / whole : 0.0);
}

// "rank 3", "ranks 0, 2-5", or "17 ranks" where naming them would be long. They are in ascending order.
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 8;
  std::string text;
  std::size_t named = 0;
  for (std::size_t i = 0; i < ranks.size(); ++named) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    const std::string last = end - i == 1 ? "" : (end - i == 2 ? ", " : "-") + std::to_string(ranks[end - 1]);
    add_to_list(text, std::to_string(ranks[i]) + last);
    i = end;
  }
  return named > kMostNamed ? counted(ranks.size(), "rank") : (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

// "; most of all it was rank 3, for 2.1 s". Of several that were late together, all are to blame.
std::string late_text(const TimelineSummary& summary) {
  constexpr double kNearly = 0.8;
  if (summary.ranks.size() < 2 || summary.ranks.front().behind_s <= 0) {
    return "";
  }
  std::vector<int> late;
  for (const TimelineSummary::Rank& each : summary.ranks) {
    if (each.behind_s >= kNearly * summary.ranks.front().behind_s) {
      late.push_back(each.rank);
    }
  }
  if (late.size() == summary.ranks.size()) {
    return "; no rank was behind much longer than others";
  }
  std::sort(late.begin(), late.end());
  return "; most of all it was " + ranks_text(late) + (late.size() > 1 ? ", each for up to " : ", for ") +
         short_time_text(summary.ranks.front().behind_s);
}

// A long name keeps its beginning and its end, where names differ. A cut character is shown as '?'.
std::string short_name(const std::string& name) {
  constexpr std::size_t kMost = 64;
  constexpr std::size_t kHalf = 30;
  return name.size() <= kMost ? name : name.substr(0, kHalf) + "..." + name.substr(name.size() - kHalf);
}

// A timeline does not know the bytes of everything.
std::string known_bytes_text(std::uint64_t bytes) {
  return bytes == 0 ? "-" : bytes_text(bytes);
}

std::string unfinished_text(const TimelineSummary& summary, std::size_t most) {
  if (summary.unfinished.empty()) {
    return "";
  }
  Rows rows;
  for (std::size_t i = 0; i < std::min(most, summary.unfinished.size()); ++i) {
    const TimelineSummary::Unfinished& each = summary.unfinished[i];
    rows.push_back({short_name(each.name), each.operation, short_time_text(each.seconds),
                    !each.is_waiting       ? "is at work"
                    : each.missing.empty() ? "waits for a rank"
                                           : "waits for " + ranks_text(each.missing)});
  }
  return "\nWhen the file ends, " + counted(summary.unfinished.size(), "operation") +
         (summary.unfinished.size() == 1 ? " has" : " have") + " not ended:\n" +
         listing({{"Tensor"}, {"Operation"}, {"Since", true}, {"State"}}, rows);
}

}  // namespace

std::string timeline_tables(const std::string& file, const TimelineSummary& summary, std::size_t most) {
  const TimelineSummary::Share& all = summary.all;
  if (all.count == 0 && summary.unfinished.empty()) {
    return file + ": no operation; it ended before the first one\n";
  }
  // The file names no rank where all operations were small ones, agreed on in one step.
  const std::string ranks = summary.ranks.empty() ? "" : counted(summary.ranks.size(), "rank") + ", ";
  std::string text = file + ": " + short_time_text(summary.seconds) + ", " + ranks + counted(all.count, "operation") +
                     " on " + counted(summary.tensors.size(), "tensor") +
                     (summary.is_cut ? " (the file ends early)" : "") + "\n";
  text += "Operations waited for a rank for " + short_time_text(all.waited_s) + ", " +
          percent_text(all.waited_s, summary.seconds) + " of the time" + late_text(summary) + ".\n";
  text += "They were at work for " + short_time_text(all.worked_s) + ", " +
          percent_text(all.worked_s, summary.seconds) + ".\n";
  if (summary.dropped > 0) {
    text += "Parts are missing: rank 0 had to leave out " + counted(summary.dropped, "record") +
            ", because its file was written too slowly.\n";
  }
  text += unfinished_text(summary, most);

  Rows rows;
  for (const TimelineSummary::Share& share : summary.operations) {
    rows.push_back({share.name, std::to_string(share.count), known_bytes_text(share.bytes),
                    short_time_text(share.waited_s), short_time_text(share.worked_s)});
  }
  text += "\n" + listing({{"Operation"}, {"Count", true}, {"Bytes", true}, {"Waited", true}, {"Worked", true}}, rows);

  if (summary.ranks.size() > 1) {
    rows.clear();
    for (std::size_t i = 0; i < std::min(most, summary.ranks.size()); ++i) {
      const TimelineSummary::Rank& rank = summary.ranks[i];
      rows.push_back({std::to_string(rank.rank), std::to_string(rank.last), short_time_text(rank.waited_for_s),
                      short_time_text(rank.behind_s)});
    }
    text += "\n" +
            listing({{"Rank", true}, {"Last to ask", true}, {"Others waited", true}, {"Behind the first", true}}, rows);
  }

  rows.clear();
  for (const TimelineSummary::Phase& phase : summary.phases) {
    rows.push_back({phase.name, std::to_string(phase.count), short_time_text(phase.seconds)});
  }
  if (!rows.empty()) {
    text += "\n" + listing({{"Phase"}, {"Count", true}, {"Time", true}}, rows);
  }

  rows.clear();
  for (std::size_t i = 0; i < std::min(most, summary.tensors.size()); ++i) {
    const TimelineSummary::Share& share = summary.tensors[i];
    rows.push_back({short_name(share.name), share.operation, std::to_string(share.count), known_bytes_text(share.bytes),
                    short_time_text(share.waited_s), short_time_text(share.worked_s)});
  }
  text +=
      "\n" +
      listing({{"Tensor"}, {"Operation"}, {"Count", true}, {"Bytes", true}, {"Waited", true}, {"Worked", true}}, rows);
  if (summary.tensors.size() > most) {
    text += "and " + counted(summary.tensors.size() - most, "tensor") + " more: --json has all\n";
  }
  return text;
}

}  // namespace hvd::launch
