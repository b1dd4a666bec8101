// ProgressRows says which live rows stand below the lines of the ranks: the newest state of each rank's progress bar,
// and last the status of hvdrun itself.
//
// A line that ends with a carriage return is the state of a progress bar, to be drawn over. On a terminal each rank has
// a row for its newest state, instead of all drawing over the same line. New states come faster than an eye can see, so
// rows are drawn a few times a second at most.
//
// Thread: loop only.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/logs/rank_tags.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class ProgressRows {
 public:
  struct Row {
    bool is_error = false;  // it stands below this stream's lines
    std::string text;
  };
  // Draws these rows in place of those before.
  using Draw = std::function<void(const std::vector<Row>& rows)>;

  // `is_live`: [is_error] the bars of this stream get rows; elsewhere their states are printed as lines. `tags` must
  // outlive this object.
  ProgressRows(EventLoop& loop, const RankTags& tags, std::array<bool, 2> is_live, Draw draw);
  ~ProgressRows();
  ProgressRows(const ProgressRows&) = delete;
  ProgressRows& operator=(const ProgressRows&) = delete;

  [[nodiscard]] bool is_live(bool is_error) const { return is_live_[is_error ? 1 : 0]; }
  [[nodiscard]] bool has_bar(int rank, bool is_error) const { return bars_.contains({rank, is_error}); }
  // Takes a whole line. Returns true when it was a state of the rank's progress bar and needs nothing more. Any other
  // line ends the bar.
  bool take_line(int rank, bool is_error, std::string_view line);
  void set_bar(int rank, bool is_error, std::string state);
  // Removes the bar at once: its last state is printed as a line now, and must not be shown twice.
  void end_bar(int rank, bool is_error);
  // Shows a row that says what is under way; empty: none.
  void show_status(std::string status);
  // Draws the rows now.
  void redraw() const;

 private:
  void schedule_redraw();

  EventLoop& loop_;
  const RankTags& tags_;
  const std::array<bool, 2> is_live_;
  const Draw draw_;
  std::map<std::pair<int, bool>, std::string> bars_;  // by rank and is_error; one without a text has no row
  std::string status_;
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
