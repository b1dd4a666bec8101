#include "launcher/logs/log_mux.h"

#include <algorithm>
#include <array>

#include <time.h>

#include "launcher/job/hidden_texts.h"

namespace hvd::launch {
namespace {

// No node gets new credit while more output than this is unwritten.
constexpr std::size_t kHighWaterBytes = 1U << 20U;
// Says how long a line waits for equal ones, and how much earlier it may leave, so that one wake-up serves several
// lines.
constexpr Duration kGatherWindow = std::chrono::milliseconds(250);
constexpr Duration kGatherSlack = std::chrono::milliseconds(50);
constexpr std::size_t kMostGathered = 4U << 20U;
constexpr std::size_t kLongestQuestion = 1000;

// Progress bars get rows on a terminal where no other program prints while ranks run, since the two would spoil each
// other's output.
bool has_rows(const ConsoleStream& own, const ConsoleStream& other) {
  return own.is_terminal() && !other.has_program();
}

// Says of a rank that is not shown that it prints nothing, so that no line of another waits for it.
void leave_out_hidden(const LogMuxOptions& options, int rank, LineGather& gather) {
  if (!options.shows(rank)) {
    gather.end(rank, false);
    gather.end(rank, true);
  }
}

}  // namespace

LogMux::LogMux(EventLoop& loop, int size, int node_count, LogMuxOptions options, Sink sink)
    : loop_(loop),
      options_(std::move(options)),
      sink_(std::move(sink)),
      tags_({{options_.tags, options_.error_tags}, options_.color, options_.labels}, size),
      ranks_(static_cast<std::size_t>(size)),
      owed_(static_cast<std::size_t>(node_count), 0) {
  const auto make = [this](int fd, const char* name) {
    return std::make_unique<ConsoleStream>(
        loop_, fd, name,
        ConsoleStream::Sink{[this] { grant_owed(); }, [this](const Error& why) { sink_.on_failed(why); }});
  };
  if (options_.gather) {
    gather_ = std::make_unique<LineGather>(
        size, kGatherWindow, kMostGathered,
        [this](std::span<const int> from, bool is_error, std::string_view line) { print(from, is_error, line); });
    for (int rank = 0; rank < size; ++rank) {
      leave_out_hidden(options_, rank, *gather_);
    }
  }
  const ConsoleFds& console = options_.console;
  out_ = make(console.out, "standard output");
  if (!is_same_file(console.out, console.err)) {
    err_ = make(console.err, "standard error");
  }
  const std::array<bool, 2> is_live = {options_.live && has_rows(stream(false), stream(true)),
                                       options_.live && has_rows(stream(true), stream(false))};
  rows_.emplace(loop_, tags_, is_live, [this](const std::vector<ProgressRows::Row>& rows) { show_below(rows); });
}

Result<void> LogMux::add_node(int count) {
  owed_.push_back(0);
  for (int i = 0; i < count; ++i) {
    ranks_.emplace_back();
    tags_.add_rank();
    if (gather_) {
      gather_->add_rank();
      leave_out_hidden(options_, static_cast<int>(ranks_.size()) - 1, *gather_);
    }
  }
  Result<void> added;
  for (const Kept& kept : kept_) {
    if (const auto more = kept.files->add_ranks(count); !more.ok()) {
      added = more;
    }
  }
  return added;
}

LogMux::~LogMux() {
  loop_.cancel(gather_timer_);
}

Result<void> LogMux::keep_in(const RankFilesOptions& options, bool has_tags) {
  HVD_TRY_ASSIGN(auto files, RankFiles::create(options, static_cast<int>(ranks_.size()),
                                               [this](const Error& why) { sink_.on_files_failed(why); }));
  kept_.push_back({std::move(files), has_tags});
  return {};
}

void LogMux::begin_files() {
  for (const Kept& kept : kept_) {
    kept.files->begin();
  }
}

void LogMux::feed(int node, int rank, bool is_error, std::string_view bytes) {
  owed_[static_cast<std::size_t>(node)] += bytes.size();
  LineSplitter& splitter = ranks_[static_cast<std::size_t>(rank)].splitters[is_error ? 1 : 0];
  splitter.feed(bytes, [&](std::string_view line) { take(rank, is_error, line, false); }, options_.hidden);
  update_bar_with_partial(rank, is_error);
  schedule_flush();
}

void LogMux::finish(int rank, bool is_error) {
  LineSplitter& splitter = ranks_[static_cast<std::size_t>(rank)].splitters[is_error ? 1 : 0];
  splitter.finish([&](std::string_view line) { take(rank, is_error, line, true); });
  rows_->end_bar(rank, is_error);
  if (gather_) {
    gather_->end(rank, is_error);
  }
  schedule_flush();
}

void LogMux::take(int rank, bool is_error, std::string_view line, bool is_last) {
  if (is_error && sink_.on_sign) {
    const FailureSigns::Sign sign = ranks_[static_cast<std::size_t>(rank)].signs.on_line(line);
    if (sign != FailureSigns::Sign::kNone) {
      sink_.on_sign(rank, sign);
    }
  }
  if (options_.hidden.empty()) {
    take_shown(rank, is_error, line, is_last);
  } else {
    take_shown(rank, is_error, masked(line, options_.hidden), is_last);
  }
}

void LogMux::take_shown(int rank, bool is_error, std::string_view bytes, bool is_last) {
  const std::string& own_tag = tags_.of(rank, is_error);
  const bool is_whole = bytes.ends_with('\n') || (bytes.ends_with('\r') && !is_last);
  const std::string closed = is_whole ? "" : std::string(bytes) + "\n";
  const std::string_view line = is_whole ? bytes : std::string_view(closed);
  const bool is_plain = own_tag.empty() && !options_.timestamps && !rows_->is_live(is_error);
  const std::uint64_t shown_before = shown_;
  if (!options_.shows(rank)) {
    schedule_flush();
  } else if (is_dropped(is_error, line.size())) {
    schedule_flush();
  } else if (const auto rewritten = rewrite_ && !is_error ? rewrite_(rank, line) : std::nullopt) {
    stream(is_error).write(*rewritten);
    ++shown_;
  } else if (rows_->take_line(rank, is_error, line)) {
    // its row is drawn later
  } else if (gather_) {
    gather_->add(rank, is_error, line, loop_.now());
  } else {
    print({&rank, 1}, is_error, is_plain ? bytes : line);
  }
  const auto unkept = is_error || options_.unkept.empty() ? std::string_view::npos : bytes.find(options_.unkept);
  if (unkept == std::string_view::npos) {
    keep(rank, is_error, bytes, line);
  } else if (unkept > 0) {
    const std::string begun = std::string(bytes.substr(0, unkept)) + "\n";
    keep(rank, is_error, begun, begun);
  }
  if (is_error) {
    ranks_[static_cast<std::size_t>(rank)].tail.add(line, shown_ == shown_before ? 0 : shown_);
  }
}

void LogMux::keep(int rank, bool is_error, std::string_view bytes, std::string_view line) {
  for (const Kept& kept : kept_) {
    const std::string tag = kept.has_tags ? tags_.of(rank, is_error) : "";
    const std::string before = options_.timestamps && kept.has_tags ? stamp() + tag : tag;
    kept.files->write(rank, is_error, before, before.empty() ? bytes : line);
  }
}

bool LogMux::is_dropped(bool is_error, std::size_t size) {
  if (is_waiting_ || stream(is_error).pending() <= kHighWaterBytes) {
    return false;
  }
  dropped_ += size;
  return true;
}

void LogMux::stop_waiting() {
  is_waiting_ = false;
  release_held();
  grant_owed();
}

void LogMux::print(std::span<const int> ranks, bool is_error, std::string_view line) {
  const std::string& first_tag = tags_.of(ranks.front(), is_error);
  const std::string_view color = first_tag.empty() ? "" : tags_.color_of(ranks.front(), is_error);
  ConsoleStream& out = stream(is_error);
  ++shown_;
  if (!color.empty()) {
    out.write(color);
  }
  if (options_.timestamps) {
    out.write(stamp());
  }
  if (ranks.size() == 1) {
    out.write(first_tag);
  } else {
    out.write(tags_.of_several(ranks, is_error));
  }
  if (!color.empty()) {
    out.write(RankTags::kColorEnd);
  }
  out.write(line);
}

// Handles an unfinished line. Most progress bars print "\r" and then their state, which is complete only when the next
// state comes; a question is complete only when it was answered.
void LogMux::update_bar_with_partial(int rank, bool is_error) {
  if (!options_.shows(rank)) {
    return;
  }
  std::string_view partial = ranks_[static_cast<std::size_t>(rank)].splitters[is_error ? 1 : 0].partial();
  const bool is_question = options_.shows_begun && partial.size() <= kLongestQuestion && options_.shows_begun(rank);
  if (rows_->is_live(is_error) && (rows_->has_bar(rank, is_error) || is_question || partial.ends_with('\r'))) {
    partial = partial.substr(0, partial.find_last_not_of('\r') + 1);
    if (!partial.empty()) {
      rows_->set_bar(rank, is_error, masked_at_cut(partial, options_.hidden));
    }
  }
}

void LogMux::show_status(const std::string& status) {
  if (options_.live && stream(true).is_terminal()) {
    rows_->show_status(masked(status, options_.hidden));
  }
}

void LogMux::hide_rows() {
  for (ConsoleStream* stream : {out_.get(), err_.get()}) {
    if (stream != nullptr) {
      stream->show_below({});
      stream->flush();
    }
  }
}

void LogMux::show_below(const std::vector<ProgressRows::Row>& rows) {
  std::array<std::vector<std::string>, 2> texts;
  for (const ProgressRows::Row& row : rows) {
    texts[row.is_error && err_ ? 1 : 0].push_back(row.text);
  }
  out_->show_below(std::move(texts[0]));
  if (err_) {
    err_->show_below(std::move(texts[1]));
  }
  schedule_flush();
}

void LogMux::arm_gather_timer() {
  const auto when = gather_ ? gather_->when() : std::nullopt;
  if (!when) {
    loop_.cancel(gather_timer_);
    gather_timer_ = 0;
  } else if (gather_timer_ == 0) {
    gather_timer_ = loop_.after(std::max(Duration::zero(), *when - loop_.now()), [this] {
      gather_timer_ = 0;
      gather_->release_due(loop_.now() + kGatherSlack);
      schedule_flush();
    });
  }
}

void LogMux::release_held() {
  if (gather_) {
    gather_->release_all();
    schedule_flush();
  }
}

const std::string& LogMux::stamp() {
  if (stamp_.empty()) {
    const time_t now = ::time(nullptr);
    tm local{};
    ::localtime_r(&now, &local);
    std::array<char, 64> text{};
    stamp_.assign(text.data(), ::strftime(text.data(), text.size(), "%a %b %e %H:%M:%S %Y", &local));
  }
  return stamp_;
}

void LogMux::say(std::string_view line) {
  ConsoleStream& out = stream(true);
  ++shown_;
  out.write((out.is_amid_line() ? "\n" : "") + masked(line, options_.hidden) + "\n");
  schedule_flush();
}

void LogMux::schedule_flush() {
  if (!flush_scheduled_) {
    flush_scheduled_ = true;
    loop_.post([this] {
      flush_scheduled_ = false;
      stamp_.clear();
      arm_gather_timer();
      for (const Kept& kept : kept_) {
        kept.files->flush();
      }
      out_->flush();
      if (err_) {
        err_->flush();
      }
      grant_owed();
    });
  }
}

void LogMux::grant_owed() {
  if (is_waiting_ && pending() > kHighWaterBytes) {
    return;
  }
  for (std::size_t node = 0; node < owed_.size(); ++node) {
    if (owed_[node] > 0) {
      sink_.grant(static_cast<int>(node), std::exchange(owed_[node], 0));
    }
  }
}

Result<void> LogMux::flush_all(const Patience& patience) {
  release_held();
  for (const Kept& kept : kept_) {
    kept.files->flush();
  }
  hide_rows();
  std::size_t left = pending();
  const Clock& clock = loop_.clock();
  const TimePoint given_up = clock.now() + patience.longest;
  TimePoint stalled = clock.now() + patience.stall;
  while (left > 0 && !(patience.is_over && patience.is_over())) {
    const TimePoint end = std::min(stalled, given_up);
    if (clock.now() >= end) {
      break;
    }
    HVD_TRY(loop_.turn(Deadline(end)));
    hide_rows();  // writes what the reader takes
    if (pending() < left) {
      stalled = clock.now() + patience.stall;
    }
    left = pending();
  }
  for (const ConsoleStream* stream : {out_.get(), err_.get()}) {
    if (stream != nullptr && stream->failure()) {
      return *stream->failure();
    }
  }
  return {};
}

}  // namespace hvd::launch
