#include "launcher/logs/log_mux.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include <time.h>

namespace hvd::launch {
namespace {

// Above this much unwritten output no node gets new credit.
constexpr std::size_t kHighWaterBytes = 1U << 20U;
// What the report may quote.
constexpr std::size_t kTailLines = 60;
constexpr std::size_t kTailLineBytes = 500;

// Neighbouring ranks differ; no red, which says error, and nothing that is invisible on black or white.
constexpr std::array<std::string_view, 6> kColors = {"\x1b[36m", "\x1b[32m", "\x1b[35m",
                                                     "\x1b[33m", "\x1b[34m", "\x1b[96m"};
constexpr std::string_view kColorEnd = "\x1b[0m";

}  // namespace

LogMux::LogMux(EventLoop& loop, int size, int node_count, LogMuxOptions options, Sink sink)
    : loop_(loop),
      options_(options),
      sink_(std::move(sink)),
      ranks_(static_cast<std::size_t>(size)),
      owed_(static_cast<std::size_t>(node_count), 0) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::string who = "[" + std::to_string(rank) + "]";
    ranks_[rank].tags = {options_.tags ? who + "<stdout>:" : "", options_.error_tags ? who + "<stderr>:" : ""};
    if (options_.color && options_.tags) {
      ranks_[rank].color = kColors[rank % kColors.size()];
    }
  }
  const auto make = [this](int fd) {
    return std::make_unique<ConsoleStream>(
        loop_, fd, ConsoleStream::Sink{[this] { grant_owed(); }, [this](const Error& why) { sink_.on_failed(why); }});
  };
  out_ = make(STDOUT_FILENO);
  if (!is_same_file(STDOUT_FILENO, STDERR_FILENO)) {
    err_ = make(STDERR_FILENO);
  }
}

Result<void> LogMux::keep_in(const RankFilesOptions& options) {
  HVD_TRY_ASSIGN(files_, RankFiles::create(options, static_cast<int>(ranks_.size()),
                                           [this](const Error& why) { sink_.on_files_failed(why); }));
  return {};
}

void LogMux::feed(int node, int rank, bool is_error, std::string_view bytes) {
  RankLog& log = ranks_[static_cast<std::size_t>(rank)];
  owed_[static_cast<std::size_t>(node)] += bytes.size();
  bytes_ += bytes.size();
  log.splitters[is_error ? 1 : 0].feed(bytes, [&](std::string_view line) { emit(log, is_error, line); });
  schedule_flush();
}

void LogMux::finish(int rank, bool is_error) {
  RankLog& log = ranks_[static_cast<std::size_t>(rank)];
  log.splitters[is_error ? 1 : 0].finish([&](std::string_view line) { emit(log, is_error, line); });
  schedule_flush();
}

void LogMux::emit(RankLog& log, bool is_error, std::string_view line) {
  ConsoleStream& out = stream(is_error);
  const std::string& tag = log.tags[is_error ? 1 : 0];
  if (!log.color.empty()) {
    out.write(log.color);
  }
  if (options_.timestamps) {
    out.write(stamp());
  }
  out.write(tag);
  if (!log.color.empty()) {
    out.write(kColorEnd);
  }
  out.write(line);
  if (files_) {
    files_->write(static_cast<int>(&log - ranks_.data()), is_error, options_.timestamps ? stamp() + tag : tag, line);
  }
  if (is_error) {
    keep_tail(log, line);
  }
}

void LogMux::keep_tail(RankLog& log, std::string_view line) {
  line = line.substr(0, std::min(line.find_last_not_of("\r\n") + 1, kTailLineBytes));
  log.tail.emplace_back(line);
  if (log.tail.size() > kTailLines) {
    log.tail.pop_front();
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
  out.write((out.is_amid_line() ? "\n" : "") + std::string(line) + "\n");
  schedule_flush();
}

void LogMux::schedule_flush() {
  if (!flush_scheduled_) {
    flush_scheduled_ = true;
    loop_.post([this] {
      flush_scheduled_ = false;
      stamp_.clear();
      if (files_) {
        files_->flush();
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
  if (out_->pending() + (err_ ? err_->pending() : 0) > kHighWaterBytes) {
    return;
  }
  for (std::size_t node = 0; node < owed_.size(); ++node) {
    if (owed_[node] > 0) {
      sink_.grant(static_cast<int>(node), std::exchange(owed_[node], 0));
    }
  }
}

void LogMux::flush_all(Deadline deadline) {
  if (files_) {
    files_->flush();
  }
  out_->flush_all(deadline);
  if (err_) {
    err_->flush_all(deadline);
  }
}

std::vector<std::string> LogMux::last_errors(int rank) const {
  const auto& tail = ranks_[static_cast<std::size_t>(rank)].tail;
  return {tail.begin(), tail.end()};
}

}  // namespace hvd::launch
