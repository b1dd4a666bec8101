#include "launcher/logs/rank_tags.h"

#include <utility>

#include "runtime/base/cpu_list.h"

namespace hvd::launch {
namespace {

// Neighbouring ranks differ in colour. Red, which means error, is left out, as are colours invisible on black or white.
constexpr std::array<std::string_view, 6> kColors = {"\x1b[36m", "\x1b[32m", "\x1b[35m",
                                                     "\x1b[33m", "\x1b[34m", "\x1b[96m"};

}  // namespace

RankTags::RankTags(RankTagsOptions options, int size) : options_(std::move(options)) {
  tags_.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    add_rank();
  }
}

void RankTags::add_rank() {
  const std::size_t rank = tags_.size();
  const std::string name = rank < options_.labels.size() ? options_.labels[rank] : std::to_string(rank);
  const std::string who = "[" + name + "]";
  tags_.push_back({options_.has_tags[0] ? who + "<stdout>:" : "", options_.has_tags[1] ? who + "<stderr>:" : ""});
}

std::string RankTags::of_several(std::span<const int> ranks, bool is_error) const {
  if (!options_.has_tags[is_error ? 1 : 0]) {
    return "";
  }
  return "[" + cpu_list_text({ranks.begin(), ranks.end()}) + (is_error ? "]<stderr>:" : "]<stdout>:");
}

std::string_view RankTags::color_of(int rank, bool is_error) const {
  return options_.has_color[is_error ? 1 : 0] ? kColors[static_cast<std::size_t>(rank) % kColors.size()] : "";
}

}  // namespace hvd::launch
