// RefusedStream reports the error of an open() that failed before anything was started. Thread: loop only.
#pragma once

#include <memory>
#include <string>

#include "launcher/transport/transport.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class RefusedStream final : public Stream {
 public:
  RefusedStream(EventLoop& loop, const Error& why, StreamSink& sink) : scope_(loop) {
    scope_.post([why, &sink] { sink.on_closed(why); });
  }
  void write(std::string) override {}
  void close_input() override {}

 private:
  Scope scope_;
};

}  // namespace hvd::launch
