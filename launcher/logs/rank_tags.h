// RankTags are what stands before the lines of a rank, so that a reader sees whose they are: "[3]<stdout>:", and on a
// terminal a colour, by rank.
//
// Value type.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

struct RankTagsOptions {
  std::array<bool, 2> has_tags{};     // [is_error] lines of this stream have tags
  std::array<bool, 2> has_color{};    // [is_error] these tags have colours
  std::vector<std::string> labels{};  // stand for the numbers of the first ranks
};

class RankTags {
 public:
  // Ends a colour.
  static constexpr std::string_view kColorEnd = "\x1b[0m";

  RankTags(RankTagsOptions options, int size);

  // One rank more has joined the job.
  void add_rank();
  // Returns the tag of a rank's lines; empty: they have none.
  [[nodiscard]] const std::string& of(int rank, bool is_error) const {
    return tags_[static_cast<std::size_t>(rank)][is_error ? 1 : 0];
  }
  // Returns the tag of a line that several ranks have printed, with all their numbers.
  [[nodiscard]] std::string of_several(std::span<const int> ranks, bool is_error) const;
  // Returns what begins the rank's colour on a terminal; empty: this stream has no colours.
  [[nodiscard]] std::string_view color_of(int rank, bool is_error) const;

 private:
  const RankTagsOptions options_;
  std::vector<std::array<std::string, 2>> tags_;  // [rank][is_error]
};

}  // namespace hvd::launch
