// RefusedStream: the answer to an open() that is wrong before anything was started. Thread: loop only.
#pragma once

#include <memory>
#include <string>

#include "launcher/transport/transport.h"

namespace hvd::launch {

class RefusedStream final : public Stream {
 public:
  RefusedStream(EventLoop& loop, const Error& why, StreamSink& sink) {
    loop.post([alive = std::weak_ptr<int>(alive_), why, &sink] {
      if (!alive.expired()) {
        sink.on_closed(why);
      }
    });
  }
  void write(std::string) override {}
  void close_input() override {}

 private:
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // shared: the posted answer asks whether we still exist
};

}  // namespace hvd::launch
