#include "launcher/timeline/timeline_tables.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "launcher/report/listing.h"
#include "launcher/report/quantities.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// "812 us", "12.3 ms", "2.1 s".
std::string short_time_text(double seconds) {
  std::array<char, 32> text{};
  const double number = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
  const char* const unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
  static_cast<void>(
      std::snprintf(text.data(), text.size(), number < 100 && number > 0 ? "%.1f %s" : "%.0f %s", number, unit));
  return text.data();
}

std::string percent_text(double part, double whole) {
  std::array<char, 32> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%.0f %%", whole > 0 ? 100 * part / whole : 0.0));
  return text.data();
}

// "waiting for rank 3", where that one is most of it.
std::string late_text(const TimelineSummary& summary) {
  if (summary.ranks.size() < 2 || summary.ranks.front().last == 0) {
    return "";
  }
  const TimelineSummary::Rank& late = summary.ranks.front();
  return "; most of all it was rank " + std::to_string(late.rank) + ", for " + short_time_text(late.waited_for_s);
}

}  // namespace

std::string timeline_tables(const std::string& file, const TimelineSummary& summary, std::size_t most) {
  const TimelineSummary::Share& all = summary.all;
  std::string text = file + ": " + short_time_text(summary.seconds) + ", " + counted(summary.ranks.size(), "rank") +
                     ", " + counted(all.count, "operation") + " on " + counted(summary.tensors.size(), "tensor") +
                     (summary.is_cut ? " (the file ends early)" : "") + "\n";
  text += "Operations waited for a rank for " + short_time_text(all.waited_s) + ", " +
          percent_text(all.waited_s, summary.seconds) + " of the time" + late_text(summary) + ".\n";
  text += "They were at work for " + short_time_text(all.worked_s) + ", " +
          percent_text(all.worked_s, summary.seconds) + ".\n";

  Rows rows;
  for (const TimelineSummary::Share& share : summary.operations) {
    rows.push_back({share.name, std::to_string(share.count), bytes_text(share.bytes), short_time_text(share.waited_s),
                    short_time_text(share.worked_s)});
  }
  text += "\n" + listing({{"Operation"}, {"Count", true}, {"Bytes", true}, {"Waited", true}, {"Worked", true}}, rows);

  if (summary.ranks.size() > 1) {
    rows.clear();
    for (std::size_t i = 0; i < std::min(most, summary.ranks.size()); ++i) {
      const TimelineSummary::Rank& rank = summary.ranks[i];
      rows.push_back({std::to_string(rank.rank), std::to_string(rank.last), short_time_text(rank.waited_for_s)});
    }
    text += "\n" + listing({{"Rank", true}, {"Last to ask", true}, {"Others waited", true}}, rows);
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
    rows.push_back({share.name, share.operation, std::to_string(share.count), bytes_text(share.bytes),
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
