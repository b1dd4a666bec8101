#include "launcher/process/pipe_writer.h"

#include <errno.h>
#include <unistd.h>

#include <utility>

namespace hvd::launch {

void PipeWriter::write(std::string bytes) {
  if (fd_.is_open() && !bytes.empty()) {
    Piece& piece = pieces_.emplace_back(Piece{std::move(bytes), {}});
    piece.rest = piece.owned;
    flush();
  }
}

void PipeWriter::push(std::string_view bytes) {
  if (fd_.is_open() && !bytes.empty()) {
    pieces_.push_back(Piece{{}, bytes});
    flush();
  }
}

void PipeWriter::finish() {
  wants_end_ = true;
  flush();
}

void PipeWriter::drop() {
  loop_.unwatch(std::exchange(watch_, 0));
  fd_.reset();
  pieces_.clear();
}

void PipeWriter::wait_for_room() {
  if (watch_ != 0) {
    return;
  }
  auto watch = loop_.watch(fd_.get(), EPOLLOUT, [this](std::uint32_t) {
    if (flush()) {
      const auto on_taken = on_taken_;  // a copy: it may destroy us
      on_taken();
    }
  });
  HVD_CHECK(watch.ok());
  watch_ = watch.value();
}

bool PipeWriter::flush() {
  bool took_any = false;
  while (fd_.is_open() && !pieces_.empty()) {
    std::string_view& rest = pieces_.front().rest;
    const ssize_t taken = ::write(fd_.get(), rest.data(), rest.size());
    if (taken > 0) {
      took_any = true;
      rest.remove_prefix(static_cast<std::size_t>(taken));
      if (rest.empty()) {
        pieces_.pop_front();
      }
    } else if (errno == EAGAIN) {
      wait_for_room();
      return took_any;
    } else if (errno != EINTR) {
      drop();  // why it takes no more shows in what the reader says, or in how it ends
    }
  }
  loop_.unwatch(std::exchange(watch_, 0));
  if (wants_end_) {
    drop();
  }
  return took_any;
}

}  // namespace hvd::launch
