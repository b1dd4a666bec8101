#include "launcher/agent/input_feed.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hvd::launch {

InputFeed::InputFeed(EventLoop& loop, std::uint64_t window, Sink sink)
    : loop_(loop), window_(window), sink_(std::move(sink)) {}

InputFeed::~InputFeed() {
  for (const Reader& reader : readers_) {
    loop_.unwatch(reader.watch);
  }
}

Result<Fd> InputFeed::add_reader(int rank) {
  HVD_TRY_ASSIGN(Pipe pipe, make_pipe());
  HVD_TRY(set_nonblocking(pipe.write_end.get()));
  Reader reader{rank, std::move(pipe.write_end), 0, came()};
  // It waits for no event: epoll reports a reader's closed end anyway, also while there is nothing to write.
  HVD_TRY_ASSIGN(reader.watch, loop_.watch(reader.pipe.get(), 0, [this, rank](std::uint32_t events) {
    const auto found = std::find_if(readers_.begin(), readers_.end(), [rank](const auto& r) { return r.rank == rank; });
    if (found == readers_.end()) {
      return;
    }
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
      close(*found);
    } else {
      serve(*found);
    }
    settle();
  }));
  readers_.push_back(std::move(reader));
  return std::move(pipe.read_end);
}

void InputFeed::drop(int rank) {
  for (Reader& reader : readers_) {
    if (reader.rank == rank) {
      close(reader);
    }
  }
  settle();
}

Result<void> InputFeed::feed(std::string_view bytes) {
  if (readers_.empty()) {
    return {};  // it was under way when the last one closed
  }
  if (bytes.size() > window_ - held_.size() || has_ended_) {
    return Error(Code::kProtocol, "the launcher sent more standard input than it was asked for");
  }
  held_ += bytes;
  serve_all();
  return {};
}

void InputFeed::end() {
  has_ended_ = true;
  serve_all();
}

void InputFeed::serve_all() {
  for (Reader& reader : readers_) {
    serve(reader);
  }
  settle();
}

void InputFeed::serve(Reader& reader) {
  const bool is_read = fill(reader);
  const bool has_all = reader.taken == came();
  if (!is_read || (has_all && has_ended_)) {
    close(reader);
  } else {
    loop_.rewatch(reader.watch, has_all ? 0U : static_cast<std::uint32_t>(EPOLLOUT));
  }
}

bool InputFeed::fill(Reader& reader) const {
  while (reader.taken < came()) {
    const std::string_view rest = std::string_view(held_).substr(static_cast<std::size_t>(reader.taken - gone_));
    const ssize_t sent = ::write(reader.pipe.get(), rest.data(), rest.size());
    if (sent >= 0) {
      reader.taken += static_cast<std::uint64_t>(sent);
    } else if (errno != EINTR) {
      return errno == EAGAIN;  // else EPIPE
    }
  }
  return true;
}

void InputFeed::close(Reader& reader) {
  loop_.unwatch(reader.watch);
  reader.watch = 0;
  reader.pipe.reset();
}

void InputFeed::settle() {
  const std::size_t closed = std::erase_if(readers_, [](const Reader& reader) { return !reader.pipe.is_open(); });
  std::uint64_t taken = came();
  for (const Reader& reader : readers_) {
    taken = std::min(taken, reader.taken);
  }
  const auto count = static_cast<std::size_t>(taken - gone_);
  if (count > 0) {
    held_.erase(0, count);
    gone_ = taken;
  }
  if (readers_.empty()) {
    held_ = std::string();
    if (closed > 0) {
      sink_.on_over();
    }
  } else if (count > 0) {
    sink_.on_taken(count);
  }
}

}  // namespace hvd::launch
