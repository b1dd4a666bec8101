#include "launcher/offers/watched_hostfile.h"

#include <sys/stat.h>

#include <utility>

#include "launcher/job/text_file.h"
#include "launcher/offers/offered_hosts.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostBytes = 16U << 20U;
constexpr int kMostChanges = 3;

// Returns a text that is another one after the file was written or replaced.
std::string mark_of(const std::string& file) {
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0) {
    return "none";
  }
  return std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) +
         " " + std::to_string(info.st_mtim.tv_nsec);
}

}  // namespace

WatchedHostfile::WatchedHostfile(EventLoop& loop, std::string file, int slots, Duration interval)
    : loop_(loop), file_(std::move(file)), slots_(slots), interval_(interval) {}

WatchedHostfile::~WatchedHostfile() {
  stop();
}

void WatchedHostfile::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  timer_ = loop_.after(Duration::zero(), [this] { look(); });
}

void WatchedHostfile::stop() {
  loop_.cancel(std::exchange(timer_, 0));
}

void WatchedHostfile::look() {
  timer_ = loop_.after(interval_, [this] { look(); });
  const std::string mark = mark_of(file_);
  changes_ = std::exchange(seen_, mark) == mark ? 0 : changes_ + 1;
  // A file that changes may be written line by line, and is read when it has stopped; one that never stops all the
  // same.
  const bool may_be_torn = changes_ % kMostChanges != 0 && !taken_.empty();
  if (mark == taken_ || may_be_torn) {
    return;
  }
  const auto text = read_text_file(file_, "the host file", kMostBytes);
  if (mark_of(file_) != mark) {
    return;
  }
  taken_ = mark;
  auto offered = text.ok() ? parse_offered_hosts(text.value(), slots_, file_) : Result<OfferedHosts>(text.error());
  if (!offered.ok()) {
    return handlers_.on_trouble(with_outcome(offered.error().message(), known_ || handlers_.has_hosts));
  }
  if (known_ != offered.value().hosts) {
    known_ = offered.value().hosts;
    handlers_.on_hosts(*known_);
  }
  // After the hosts: before any are known, trouble ends the start.
  if (timer_ != 0 && !offered.value().notes.empty()) {
    handlers_.on_trouble(offered.value().notes.front());
  }
}

}  // namespace hvd::launch
