#include "launcher/logs/progress_rows.h"

namespace hvd::launch {
namespace {

// Live rows are redrawn this often: often enough for the eye, and little work for a slow terminal.
constexpr Duration kRedrawInterval = std::chrono::milliseconds(250);

}  // namespace

ProgressRows::ProgressRows(EventLoop& loop, const RankTags& tags, std::array<bool, 2> is_live, Draw draw)
    : loop_(loop), tags_(tags), is_live_(is_live), draw_(std::move(draw)) {}

ProgressRows::~ProgressRows() {
  loop_.cancel(timer_);
}

bool ProgressRows::take_line(int rank, bool is_error, std::string_view line) {
  if (!is_live(is_error)) {
    return false;
  }
  const bool is_bar = line.ends_with('\r');
  if (is_bar) {
    set_bar(rank, is_error, std::string(line.substr(0, line.size() - 1)));
  } else {
    end_bar(rank, is_error);
  }
  return is_bar;
}

void ProgressRows::set_bar(int rank, bool is_error, std::string state) {
  std::string& bar = bars_[{rank, is_error}];
  if (bar != state) {
    bar = std::move(state);
    schedule_redraw();
  }
}

void ProgressRows::end_bar(int rank, bool is_error) {
  const auto ended = bars_.extract({rank, is_error});
  if (!ended.empty() && !ended.mapped().empty()) {
    redraw();
  }
}

void ProgressRows::show_status(std::string status) {
  if (status == status_) {
    return;
  }
  status_ = std::move(status);
  if (status_.empty()) {
    redraw();
  } else {
    schedule_redraw();
  }
}

void ProgressRows::schedule_redraw() {
  if (timer_ == 0) {
    timer_ = loop_.after(kRedrawInterval, [this] {
      timer_ = 0;
      redraw();
    });
  }
}

void ProgressRows::redraw() const {
  std::vector<Row> rows;
  for (const auto& [whose, state] : bars_) {
    const auto [rank, is_error] = whose;
    if (!state.empty()) {
      const std::string_view color = tags_.color_of(rank, is_error);
      const std::string_view color_end = color.empty() ? "" : RankTags::kColorEnd;
      rows.push_back({is_error, std::string(color) + tags_.of(rank, is_error) + std::string(color_end) + state});
    }
  }
  if (!status_.empty()) {
    rows.push_back({true, status_});
  }
  draw_(rows);
}

}  // namespace hvd::launch
