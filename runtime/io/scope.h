// Scope: the life of an object that the event loop is to call back. What is posted through it does not run once the
// object is gone, so that no object needs a token of its own for that.
//
// Thread: loop only. A member of the object whose life it is.
#pragma once

#include <memory>
#include <utility>

#include "runtime/io/event_loop.h"

namespace hvd {

class Scope {
 public:
  explicit Scope(EventLoop& loop) : loop_(loop) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  void post(EventLoop::Task task) {
    loop_.post([life = life(), task = std::move(task)] {
      if (!life.expired()) {
        task();
      }
    });
  }
  // It expires with the object. Who calls a handler that may destroy the object takes this before, and looks after.
  [[nodiscard]] std::weak_ptr<const void> life() const { return life_; }

 private:
  EventLoop& loop_;
  const std::shared_ptr<const void> life_ = std::make_shared<char>();
};

}  // namespace hvd
