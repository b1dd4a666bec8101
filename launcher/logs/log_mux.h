// LogMux: what the ranks print, made into whole tagged lines on the console: "[3]<stdout>:epoch 1 loss 0.5", and in a
// file per rank and stream where that is wanted.
//
// It also keeps the last lines of each rank's standard error for the report, and decides when a node may send more:
// bytes are granted back once the console has taken them, so a slow reader slows the ranks and memory stays bounded.
//
// Thread: loop only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/logs/console.h"
#include "launcher/logs/failure_signs.h"
#include "launcher/logs/line_gather.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/logs/rank_files.h"
#include "runtime/base/event_loop.h"

namespace hvd::launch {

struct LogMuxOptions {
  bool tags = true;  // [rank]<stdout>: before lines on standard output
  bool error_tags = true;
  bool timestamps = false;      // asctime(3)'s form in local time, before the tag, as horovodrun has it
  std::array<bool, 2> color{};  // [is_error] of the tags on the console, by rank
  bool live = false;            // rows that are drawn anew, where the console is a terminal
  // Whether somebody may answer the rank: then a line that it has begun, which may be a question, is live.
  std::function<bool(int rank)> shows_begun{};
  bool gather = false;                // equal lines of several ranks are one on the console (LineGather)
  std::vector<std::string> labels{};  // of the ranks, in their tags; empty: their numbers
  std::vector<std::string> hidden{};  // texts in whose place *** stands, wherever a line goes
  bool shows_ranks = true;            // false: what they print is in files alone
};

class LogMux {
 public:
  struct Sink {
    // The node may send this many bytes more.
    std::function<void(int node, std::uint64_t bytes)> grant;
    // Standard output or standard error cannot be written any more.
    std::function<void(const Error&)> on_failed;
    // A rank's file cannot be written any more.
    std::function<void(const Error&)> on_files_failed;
    // A rank's standard error tells of a failure.
    std::function<void(int rank, FailureSigns::Sign sign)> on_sign{};
  };

  // What stands on the console in place of a line of standard output, with its newline and without a tag; empty:
  // nothing. nullopt: the line as ever.
  using Rewrite = std::function<std::optional<std::string>(int rank, std::string_view line)>;

  LogMux(EventLoop& loop, int size, int node_count, LogMuxOptions options, Sink sink);
  ~LogMux();
  LogMux(const LogMux&) = delete;
  LogMux& operator=(const LogMux&) = delete;

  // Before the first bytes, for each set of files: also write what the ranks print there, with their tags or as it is.
  Result<void> keep_in(const RankFilesOptions& options, bool has_tags = true);
  // Before the first bytes. The ranks' files keep what the ranks printed.
  void rewrite_with(Rewrite rewrite) { rewrite_ = std::move(rewrite); }
  // Bytes that a rank of `node` printed; `is_error` for its standard error.
  void feed(int node, int rank, bool is_error, std::string_view bytes);
  // The rank's stream has ended: a last line without newline is given one, but where there are no tags, and bytes pass
  // as they are.
  void finish(int rank, bool is_error);
  // A line of hvdrun itself, to standard error, in order with what the ranks printed before. It begins a line there,
  // also after a progress bar, which ends with a carriage return.
  void say(std::string_view line);
  // On a terminal, a row below the lines that tells of something under way; empty: none. It changes a few times a
  // second at most, and what has gone before it was drawn is never seen.
  void show_status(std::string status);
  // Takes away, at once, all that stands below the lines, for as long as the terminal is somebody else's; draws it
  // again.
  void hide_rows();
  void show_rows() { redraw(); }
  // What waits for equal lines of other ranks waits no longer, so that what is said next comes after it.
  void release_held();
  // How long the last of the output is waited for.
  struct Patience {
    Deadline deadline;
    Duration stall;                      // for a reader that takes nothing
    std::function<bool()> is_over = {};  // asked after each turn of the loop; empty: never
  };
  // Everything to the files and the console. The loop turns meanwhile, so that signals are heard; each of the two
  // streams goes on while the other one's reader takes nothing. An error: not all that the ranks printed could be
  // written. What a reader has not taken in time is unwritten().
  Result<void> flush_all(const Patience& patience);
  // From now on a reader who takes nothing is not waited for: nodes are granted what they send, and of that what is
  // too much for the console is dropped, though not by the ranks' files.
  void stop_waiting();
  // Bytes that were dropped, or wait for a reader still.
  [[nodiscard]] std::size_t unwritten() const { return dropped_ + pending(); }

  // The last lines of a rank's standard error, oldest first, without newlines.
  [[nodiscard]] std::vector<std::string> last_errors(int rank) const;
  // The folder with all that a rank printed; empty when it is not kept, or not any more.
  [[nodiscard]] std::string kept_in(int rank) const {
    return kept_.empty() ? "" : kept_.front().files->folder_of(rank);
  }
  [[nodiscard]] std::uint64_t bytes_printed() const { return bytes_; }

 private:
  struct RankLog {
    std::array<LineSplitter, 2> splitters;
    std::array<std::string, 2> tags;
    std::string_view color;  // what begins a tag where tags have colours
    // A line that ends with a carriage return is the state of a progress bar, to be drawn over. On a terminal each rank
    // has a row for the newest one, instead of all drawing over the same line; elsewhere it is a line.
    std::array<bool, 2> has_bar{};
    std::array<std::string, 2> bars;
    std::deque<std::string> tail;  // of standard error
    FailureSigns signs;
    bool ends_with_bar = false;  // its last line is the state of a progress bar
  };

  struct Kept {
    std::unique_ptr<RankFiles> files;
    bool has_tags = true;
  };

  // A line, or what has no newline: a piece of one that is too long, or the last one (`is_last`).
  void take(int rank, bool is_error, std::string_view line, bool is_last);
  // The same without what is hidden.
  [[nodiscard]] std::string masked(std::string_view line) const;
  void take_shown(int rank, bool is_error, std::string_view line, bool is_last);
  // True when the line is the business of the rank's bar.
  bool update_bar(int rank, bool is_error, std::string_view line);
  void update_bar_with_partial(int rank, bool is_error);
  void set_bar(int rank, bool is_error, bool has_bar, std::string text);
  // Rows for bars: on a terminal on which nobody else prints while ranks run, who would spoil them and be spoilt.
  [[nodiscard]] bool is_live(bool is_error) {
    return options_.live && stream(is_error).is_terminal() && !stream(!is_error).has_program();
  }
  void schedule_redraw();
  void redraw();
  void print(std::span<const int> ranks, bool is_error, std::string_view line);
  [[nodiscard]] std::string tag_of(std::span<const int> ranks, bool is_error) const;
  // For as long as lines are held, and not otherwise.
  void arm_gather_timer();
  void keep_tail(RankLog& log, std::string_view line);
  // The current second, as text; made anew once per turn.
  const std::string& stamp();
  void schedule_flush();
  void grant_owed();
  [[nodiscard]] std::size_t pending() const { return out_->pending() + (err_ ? err_->pending() : 0); }
  // Whether a line is one too many for its stream; it is counted then.
  bool is_dropped(bool is_error, std::size_t size);
  ConsoleStream& stream(bool is_error) { return is_error && err_ ? *err_ : *out_; }

  EventLoop& loop_;
  const LogMuxOptions options_;
  const Sink sink_;
  Rewrite rewrite_;
  std::vector<RankLog> ranks_;
  std::vector<std::uint64_t> owed_;  // [node] bytes received and not granted back yet
  bool is_waiting_ = true;           // for the readers
  std::size_t dropped_ = 0;
  std::unique_ptr<ConsoleStream> out_;
  std::unique_ptr<ConsoleStream> err_;  // null when both lead to the same place: one queue keeps the order
  std::vector<Kept> kept_;              // empty: not kept
  std::unique_ptr<LineGather> gather_;  // null: lines are printed as they come
  TimerId gather_timer_ = 0;
  std::set<std::pair<int, bool>> barred_;  // rank and is_error of each bar with a text
  std::string status_;
  TimerId redraw_timer_ = 0;
  std::string stamp_;
  bool flush_scheduled_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace hvd::launch
