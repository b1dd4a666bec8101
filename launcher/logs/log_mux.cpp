#include "launcher/logs/log_mux.h"

#include <unistd.h>

#include <algorithm>

namespace hvd::launch {
namespace {

// Above this much unwritten output no node gets new credit.
constexpr std::size_t kHighWaterBytes = 1U << 20U;
// What the report may quote.
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailLineBytes = 500;

}  // namespace

LogMux::LogMux(EventLoop& loop, int size, int node_count, LogMuxOptions options, Sink sink)
    : loop_(loop),
      options_(options),
      sink_(std::move(sink)),
      ranks_(static_cast<std::size_t>(size)),
      owed_(static_cast<std::size_t>(node_count), 0) {
  if (options_.tags) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].tags = {"[" + std::to_string(rank) + "]<stdout>:", "[" + std::to_string(rank) + "]<stderr>:"};
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
  out.write(log.tags[is_error ? 1 : 0]);
  out.write(line);
  if (is_error) {
    line = line.substr(0, std::min(line.find_last_not_of("\r\n") + 1, kTailLineBytes));
    log.tail.emplace_back(line);
    if (log.tail.size() > kTailLines) {
      log.tail.pop_front();
    }
  }
}

void LogMux::say(std::string_view line) {
  stream(true).write(std::string(line) + "\n");
  schedule_flush();
}

void LogMux::schedule_flush() {
  if (!flush_scheduled_) {
    flush_scheduled_ = true;
    loop_.post([this] {
      flush_scheduled_ = false;
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
