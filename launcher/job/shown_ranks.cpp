#include "launcher/job/shown_ranks.h"

#include <algorithm>
#include <optional>
#include <string>

#include "launcher/job/text_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {

Result<ShownRanks::Range> ShownRanks::read_range(std::string_view word) {
  const std::size_t dash = std::min(word.find('-'), word.size());
  const std::optional<int> first = parse_number<int>(word.substr(0, dash), 0);
  const std::optional<int> last = dash < word.size() ? parse_number<int>(word.substr(dash + 1), 0) : first;
  if (!first || !last || *last < *first) {
    return Error(Code::kInvalid,
                 "'" + shown_text(word) + "' is neither a rank's number nor a range of them, as in 0,4-7");
  }
  return Range{*first, *last};
}

Result<ShownRanks> ShownRanks::parse(std::string_view text) {
  ShownRanks ranks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    HVD_TRY_ASSIGN(const Range range, read_range(text.substr(begin, end - begin)));
    ranks.ranges_.push_back(range);
    begin = end + 1;
  }
  return ranks;
}

bool ShownRanks::has(int rank) const {
  return ranges_.empty() || std::any_of(ranges_.begin(), ranges_.end(), [rank](const Range& range) {
           return range.first <= rank && rank <= range.last;
         });
}

int ShownRanks::last() const {
  int last = -1;
  for (const Range& range : ranges_) {
    last = std::max(last, range.last);
  }
  return last;
}

}  // namespace hvd::launch
