#include "launcher/http/http_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostHead = 16U << 10U;
constexpr std::size_t kMostCallers = 32;
// What a reader of a stream may leave untaken.
constexpr std::size_t kMostPending = 64U << 10U;
// A caller that has not asked, or not taken its answer, is dropped after this.
constexpr auto kPatience = std::chrono::seconds(10);

// Takes the path from nobody who still listens there.
Result<Fd> listen_at_path(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Error(Code::kInvalid, path + " is there, and is no socket");
    }
    if (connect_unix(path, Deadline::after(std::chrono::seconds(1))).ok()) {
      return Error(Code::kInvalid, "another process listens at " + path);
    }
  }
  return replace_unix_listener(path);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::at_address(EventLoop& loop, const std::string& ip, int port,
                                                           Handler handler) {
  HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::make(ip, static_cast<std::uint16_t>(port)));
  HVD_TRY_ASSIGN(Fd listener, listen_tcp(address));
  return make(loop, std::move(listener), "", std::move(handler));
}

Result<std::unique_ptr<HttpServer>> HttpServer::at_socket(EventLoop& loop, const std::string& path, Handler handler) {
  HVD_TRY_ASSIGN(Fd listener, listen_at_path(path));
  return make(loop, std::move(listener), path, std::move(handler));
}

Result<std::unique_ptr<HttpServer>> HttpServer::make(EventLoop& loop, Fd listener, std::string path, Handler handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(loop, std::move(listener), std::move(path), std::move(handler)));
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [raw = server.get()](Fd fd) { raw->take(std::move(fd)); };
  handlers.on_trouble = [](const Error&) {};  // who asks tries again
  HVD_TRY_ASSIGN(server->accept_, AcceptWatch::create(loop, server->listener_.get(), std::move(handlers)));
  return server;
}

HttpServer::~HttpServer() {
  while (!callers_.empty()) {
    drop(callers_.begin()->first);
  }
  if (listener_.is_open() && !path_.empty()) {
    ::unlink(path_.c_str());
  }
}

Result<int> HttpServer::port() const {
  HVD_TRY_ASSIGN(const SocketAddress own, SocketAddress::local_of(listener_.get()));
  return static_cast<int>(own.port());
}

std::set<std::string> HttpServer::topics() const {
  std::set<std::string> topics;
  for (const auto& [number, caller] : callers_) {
    topics.insert(caller.topic);
  }
  topics.erase("");
  return topics;
}

void HttpServer::publish(const std::string& topic, std::string_view text) {
  std::vector<std::uint64_t> stuck;
  for (auto& [number, caller] : callers_) {
    if (caller.topic != topic || topic.empty()) {
      continue;
    }
    if (caller.channel->pending() > kMostPending) {
      stuck.push_back(number);
    } else {
      caller.channel->write(text);
    }
  }
  for (const std::uint64_t number : stuck) {
    drop(number);
  }
}

void HttpServer::take(Fd fd) {
  if (callers_.size() >= kMostCallers && !make_room()) {
    return;
  }
  const std::uint64_t number = next_caller_++;
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this, number](Bytes bytes) { on_bytes(number, bytes); };
  handlers.on_closed = [this, number](const Error&) { drop(number); };
  handlers.on_input_end = [this, number] { on_input_end(number); };
  auto channel = ByteChannel::create(loop_, std::move(fd), Fd(), std::move(handlers));
  if (channel.ok()) {
    const TimerId timer = loop_.after(kPatience, [this, number] { drop(number); });
    callers_.emplace(number, Caller{std::move(channel).value(), "", false, "", timer});
  }
}

// Drops the oldest of those that have not asked yet, else of those that take their answer; those that read streams have
// shown that they may, and stay.
bool HttpServer::make_room() {
  for (const bool is_answered : {false, true}) {
    const auto oldest = std::find_if(callers_.begin(), callers_.end(), [is_answered](const auto& entry) {
      return entry.second.is_answered == is_answered && entry.second.topic.empty();
    });
    if (oldest != callers_.end()) {
      drop(oldest->first);
      return true;
    }
  }
  return false;
}

// A caller has time as long as it takes something.
void HttpServer::look_again(std::uint64_t number, std::size_t left) {
  Caller& caller = callers_.at(number);
  const std::size_t pending = caller.channel->pending();
  if (pending >= left) {
    drop(number);
  } else {
    caller.timer = loop_.after(kPatience, [this, number, pending] { look_again(number, pending); });
  }
}

HttpAnswer HttpServer::answer_to(std::string_view head) const {
  const auto request = parse_http_request(head);
  if (!request) {
    return http_refusal("400 Bad Request");
  }
  try {
    return handler_(*request);
  } catch (const std::exception&) {  // such as no memory for a page: the next request may be answered
    return http_refusal("500 Internal Server Error");
  }
}

void HttpServer::on_bytes(std::uint64_t number, Bytes bytes) {
  Caller& caller = callers_.at(number);
  if (caller.is_answered) {
    return;
  }
  caller.head += as_text(bytes);
  const std::size_t end = caller.head.find("\r\n\r\n");
  if (end == std::string::npos && caller.head.size() < kMostHead) {
    return;
  }
  caller.is_answered = true;
  const HttpAnswer answer = end == std::string::npos ? http_refusal("431 Request Header Fields Too Large")
                                                     : answer_to(std::string_view(caller.head).substr(0, end + 2));
  caller.head = std::string();
  caller.topic = answer.topic;
  caller.channel->write(http_text(answer));
  loop_.cancel(std::exchange(caller.timer, 0));
  if (answer.topic.empty()) {
    await_reader(number);
  }
}

// Ends the answer; its caller has time to take it.
void HttpServer::await_reader(std::uint64_t number) {
  Caller& caller = callers_.at(number);
  caller.channel->close_output();
  const std::size_t left = caller.channel->pending() + 1;
  caller.timer = loop_.after(kPatience, [this, number, left] { look_again(number, left); });
}

// A caller that will say no more may still wait for its answer, as `nc -N` does.
void HttpServer::on_input_end(std::uint64_t number) {
  Caller& caller = callers_.at(number);
  if (!caller.is_answered) {
    drop(number);
  } else if (!caller.topic.empty()) {  // a stream would never end
    caller.topic.clear();
    await_reader(number);
  }
}

void HttpServer::drop(std::uint64_t number) {
  if (const auto found = callers_.find(number); found != callers_.end()) {
    loop_.cancel(found->second.timer);
    callers_.erase(found);
  }
}

}  // namespace hvd::launch
