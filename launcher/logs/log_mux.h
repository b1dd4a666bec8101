// LogMux turns what the ranks print into whole tagged lines on the console, such as "[3]<stdout>:epoch 1 loss 0.5", and
// into a file per rank and stream where that is wanted.
//
// It also keeps the last lines of each rank's standard error for the report, and controls how fast the nodes send.
// Bytes are granted back once the console has taken them. So a slow reader slows the ranks down, and memory stays
// bounded.
//
// Thread: loop only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/logs/console.h"
#include "launcher/logs/error_tail.h"
#include "launcher/logs/failure_signs.h"
#include "launcher/logs/line_gather.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/logs/progress_rows.h"
#include "launcher/logs/rank_files.h"
#include "launcher/logs/rank_tags.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct LogMuxOptions {
  bool tags = true;  // [rank]<stdout>: before lines on standard output
  bool error_tags = true;
  bool timestamps = false;      // in local time, in asctime(3)'s form, before the tag, as horovodrun prints it
  std::array<bool, 2> color{};  // [is_error] colours the tags on the console, by rank
  bool live = false;            // show rows that are redrawn, where the console is a terminal
  // True when a user may answer the rank on standard input. An unfinished line may be a question, so it is then shown.
  std::function<bool(int rank)> shows_begun{};
  bool gather = false;                // print equal lines of several ranks once (LineGather)
  std::vector<std::string> labels{};  // shown in the ranks' tags; empty: their numbers
  std::vector<std::string> hidden{};  // texts that are replaced by *** wherever a line goes
  bool shows_ranks = true;            // false: what they print goes to files alone
  // False for a rank whose output goes to files alone. Without this function all ranks are shown.
  std::function<bool(int rank)> is_rank_shown{};
  ConsoleFds console{};
  // What a line of standard output has from this text on goes to no file; empty: all of it does.
  std::string unkept{};

  [[nodiscard]] bool shows(int rank) const { return shows_ranks && (!is_rank_shown || is_rank_shown(rank)); }
};

class LogMux {
 public:
  struct Sink {
    // The node may send this many more bytes.
    std::function<void(int node, std::uint64_t bytes)> grant;
    // Standard output or standard error cannot be written any more.
    std::function<void(const Error&)> on_failed;
    // A rank's file cannot be written any more.
    std::function<void(const Error&)> on_files_failed;
    // A rank's standard error shows a failure.
    std::function<void(int rank, FailureSigns::Sign sign)> on_sign{};
  };

  // Returns what the console shows in place of a line of standard output, with its newline and without a tag; empty:
  // nothing. nullopt: the line stays as it is.
  using Rewrite = std::function<std::optional<std::string>(int rank, std::string_view line)>;

  LogMux(EventLoop& loop, int size, int node_count, LogMuxOptions options, Sink sink);
  ~LogMux();
  // A node with so many ranks has joined the job. Returns why their output cannot be kept.
  Result<void> add_node(int count);
  LogMux(const LogMux&) = delete;
  LogMux& operator=(const LogMux&) = delete;

  // Adds a set of files that the ranks' output also goes to, with tags or without. Call it before the first bytes.
  Result<void> keep_in(const RankFilesOptions& options, bool has_tags = true);
  // The ranks start: the files lose what an earlier job has left in them.
  void begin_files();
  // Sets the rewriting of console lines; files keep what the ranks printed. Call it before the first bytes.
  void rewrite_with(Rewrite rewrite) { rewrite_ = std::move(rewrite); }
  // Takes bytes that a rank of `node` printed; `is_error` for its standard error.
  void feed(int node, int rank, bool is_error, std::string_view bytes);
  // The rank's stream has ended. A last line without newline gets one, except where there are no tags and bytes pass
  // unchanged.
  void finish(int rank, bool is_error);
  // Prints a line of hvdrun itself on standard error, in order with what the ranks printed before. It begins a new line
  // there, also after a progress bar, which ends with a carriage return.
  void say(std::string_view line);
  // Shows, on a terminal, a row below the lines that says what is under way; empty: none. It is redrawn a few times a
  // second at most, so a status that is replaced before that is never seen.
  void show_status(const std::string& status);
  // Removes all rows below the lines at once, for as long as the terminal belongs to somebody else; show_rows() draws
  // them again.
  void hide_rows();
  void show_rows() { rows_->redraw(); }
  // Prints the lines that wait for equal lines of other ranks now, so that what is printed next comes after them.
  void release_held();
  // Patience limits the wait for the last of the output.
  struct Patience {
    Duration longest;                    // limit for the whole wait, by the loop's clock
    Duration stall;                      // limit for a reader that takes nothing
    std::function<bool()> is_over = {};  // called after each turn of the loop; empty: never over
  };
  // Writes everything to the files and the console. The loop turns meanwhile, so that signals are handled. Each of the
  // two streams goes on while the other one's reader takes nothing. An error says that not all of the ranks' output
  // could be written; unwritten() counts what a reader has not taken in time.
  Result<void> flush_all(const Patience& patience);
  // Stops waiting for a reader that takes nothing. From now on nodes are granted all that they send. What is too much
  // for the console is dropped there, but the ranks' files still get it.
  void stop_waiting();
  // Returns the number of bytes that were dropped or still wait for a reader.
  [[nodiscard]] std::size_t unwritten() const { return dropped_ + pending(); }

  // Returns the last lines of a rank's standard error.
  [[nodiscard]] LastErrors last_errors(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].tail.last(shown_);
  }
  // Returns the folder with all that a rank printed; empty when it is not kept, or no longer complete.
  [[nodiscard]] std::string kept_in(int rank) const {
    return kept_.empty() ? "" : kept_.front().files->folder_of(rank);
  }

 private:
  struct RankLog {
    std::array<LineSplitter, 2> splitters;
    ErrorTail tail;
    FailureSigns signs;
  };

  struct Kept {
    std::unique_ptr<RankFiles> files;
    bool has_tags = true;
  };

  // Takes a line, or a part without newline: a piece of an overlong line, or the last one (`is_last`).
  void take(int rank, bool is_error, std::string_view line, bool is_last);
  void take_shown(int rank, bool is_error, std::string_view line, bool is_last);
  // Writes it to the files: the bytes as they are, or where there is something before them, as a whole line.
  void keep(int rank, bool is_error, std::string_view bytes, std::string_view line);
  void update_bar_with_partial(int rank, bool is_error);
  // Sets the rows that the next flush draws. They are drawn again whenever lines have taken their place.
  void show_below(const std::vector<ProgressRows::Row>& rows);
  void print(std::span<const int> ranks, bool is_error, std::string_view line);
  // Runs the timer for as long as lines are held, and not otherwise.
  void arm_gather_timer();
  // Returns the current second as text, made once per turn.
  const std::string& stamp();
  void schedule_flush();
  void grant_owed();
  [[nodiscard]] std::size_t pending() const { return out_->pending() + (err_ ? err_->pending() : 0); }
  // True when there is no room for the line on its stream; it is then counted as dropped.
  bool is_dropped(bool is_error, std::size_t size);
  ConsoleStream& stream(bool is_error) { return is_error && err_ ? *err_ : *out_; }

  EventLoop& loop_;
  const LogMuxOptions options_;
  const Sink sink_;
  Rewrite rewrite_;
  RankTags tags_;
  std::vector<RankLog> ranks_;
  std::vector<std::uint64_t> owed_;  // [node] bytes received and not granted back yet
  bool is_waiting_ = true;           // whether slow readers are waited for
  std::size_t dropped_ = 0;
  std::unique_ptr<ConsoleStream> out_;
  std::unique_ptr<ConsoleStream> err_;  // null when both lead to the same place: one queue keeps the order
  std::vector<Kept> kept_;              // empty: not kept
  std::unique_ptr<LineGather> gather_;  // null: lines are printed as they come
  TimerId gather_timer_ = 0;
  std::optional<ProgressRows> rows_;  // made once the streams are known
  std::string stamp_;
  bool flush_scheduled_ = false;
  std::uint64_t shown_ = 0;  // lines on both streams, which may end on one screen
};

}  // namespace hvd::launch
