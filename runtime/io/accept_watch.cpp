#include "runtime/io/accept_watch.h"

#include <utility>

#include "runtime/io/socket.h"

namespace hvd {
namespace {

// The limit in one turn, so that many connections at once do not keep the loop from its other work.
constexpr int kMostAtOnce = 64;

}  // namespace

Result<std::unique_ptr<AcceptWatch>> AcceptWatch::create(EventLoop& loop, int listener, Handlers handlers) {
  std::unique_ptr<AcceptWatch> made(new AcceptWatch(loop, listener, std::move(handlers)));
  AcceptWatch* self = made.get();
  HVD_TRY_ASSIGN(made->watch_, loop.watch(listener, EPOLLIN, [self](std::uint32_t) { self->accept_now(); }));
  return made;
}

AcceptWatch::AcceptWatch(EventLoop& loop, int listener, Handlers handlers)
    : loop_(loop), listener_(listener), handlers_(std::move(handlers)), scope_(loop) {}

AcceptWatch::~AcceptWatch() {
  loop_.unwatch(watch_);
  loop_.cancel(retry_);
}

void AcceptWatch::accept_now() {
  const auto life = scope_.life();
  for (int i = 0; i < kMostAtOnce && !life.expired(); ++i) {
    auto accepted = accept_ready(listener_);
    if (!accepted.ok()) {
      return pause(accepted.error());
    }
    if (!accepted.value().is_open()) {
      return;
    }
    handlers_.on_connection(std::move(accepted).value());
  }
}

void AcceptWatch::pause(const Error& why) {
  loop_.rewatch(watch_, 0);
  loop_.cancel(retry_);
  retry_ = loop_.after(kRetry, [this] {
    retry_ = 0;
    loop_.rewatch(watch_, EPOLLIN);
  });
  if (!told_at_ || loop_.now() - *told_at_ > kToldFor) {
    told_at_ = loop_.now();
    handlers_.on_trouble(why);
  }
}

}  // namespace hvd
