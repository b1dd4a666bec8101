// HttpServer answers requests over HTTP/1.1: it reads a request's head and no more, and closes each connection after
// its answer, unless that begins a stream of events.
//
// Thread: loop only. The loop outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "launcher/http/http_message.h"
#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/accept_watch.h"
#include "runtime/io/byte_channel.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // Listens at an address, or at the path of a socket that only this user may use; the socket is removed at the end.
  // Port 0: any that is free. An error says why nothing can be served there.
  static Result<std::unique_ptr<HttpServer>> at_address(EventLoop& loop, const std::string& ip, int port,
                                                        Handler handler);
  static Result<std::unique_ptr<HttpServer>> at_socket(EventLoop& loop, const std::string& path, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The port of an address.
  [[nodiscard]] Result<int> port() const;
  // Returns the topics of streams that somebody reads.
  [[nodiscard]] std::set<std::string> topics() const;
  // Sends this text on every stream of the topic. A reader that takes nothing any more is dropped.
  void publish(const std::string& topic, std::string_view text);

 private:
  struct Caller {
    std::unique_ptr<ByteChannel> channel;
    std::string head;
    bool is_answered = false;
    std::string topic;  // of the stream that it reads; empty: none
    TimerId timer = 0;
  };

  HttpServer(EventLoop& loop, Fd listener, std::string path, Handler handler)
      : loop_(loop), listener_(std::move(listener)), path_(std::move(path)), handler_(std::move(handler)) {}
  static Result<std::unique_ptr<HttpServer>> make(EventLoop& loop, Fd listener, std::string path, Handler handler);
  void take(Fd fd);
  void on_bytes(std::uint64_t number, Bytes bytes);
  void on_input_end(std::uint64_t number);
  void await_reader(std::uint64_t number);
  [[nodiscard]] HttpAnswer answer_to(std::string_view head) const;
  bool make_room();
  void look_again(std::uint64_t number, std::size_t left);
  void drop(std::uint64_t number);

  EventLoop& loop_;
  const Fd listener_;
  const std::string path_;  // of a socket; empty: it has an address
  const Handler handler_;
  std::unique_ptr<AcceptWatch> accept_;
  std::map<std::uint64_t, Caller> callers_;  // the oldest first
  std::uint64_t next_caller_ = 1;
};

}  // namespace hvd::launch
