// MetricsServer answers whoever asks for the metrics of a running job over HTTP/1.1 (GET /metrics), as Prometheus does.
// It knows that one resource, closes each connection after its answer, and reads no more than a request's head.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/job/metrics_place.h"
#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// Returns the whole answer to a request's head, which ends with an empty line. Pure but for `metrics`, which is called
// where the metrics are to be given.
std::string metrics_answer(std::string_view head, const std::string& token,
                           const std::function<std::string()>& metrics);

class MetricsServer {
 public:
  // `metrics` makes their text in the form of OpenMetrics. An error says why nothing can be served there.
  static Result<std::unique_ptr<MetricsServer>> listen(EventLoop& loop, const MetricsPlace& place,
                                                       std::function<std::string()> metrics);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  struct Caller {
    std::unique_ptr<ByteChannel> channel;
    std::string head;
    bool is_answered = false;
    TimerId timer = 0;
  };

  MetricsServer(EventLoop& loop, MetricsPlace place, std::function<std::string()> metrics)
      : loop_(loop), place_(std::move(place)), metrics_(std::move(metrics)) {}
  Result<void> open();
  void take(Fd fd);
  void on_bytes(std::uint64_t number, Bytes bytes);
  void drop(std::uint64_t number);

  EventLoop& loop_;
  const MetricsPlace place_;
  const std::function<std::string()> metrics_;
  Fd listener_;
  std::unique_ptr<AcceptWatch> accept_;
  std::map<std::uint64_t, Caller> callers_;  // the oldest first
  std::uint64_t next_caller_ = 1;
};

}  // namespace hvd::launch
