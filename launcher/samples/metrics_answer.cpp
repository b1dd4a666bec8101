#include "launcher/samples/metrics_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include <stdio.h>

#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostHead = 16U << 10U;
constexpr std::size_t kMostCallers = 32;
// A caller that has not asked, or not taken its answer, is dropped after this.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr mode_t kOwnSocket = 0600;

std::string answer(const std::string& status, const std::string& type, const std::string& body,
                   const std::string& header = "") {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + header + "Connection: close\r\n\r\n" + body;
}

std::string refusal(const std::string& status, const std::string& header = "") {
  return answer(status, "text/plain; charset=utf-8", status + "\n", header);
}

// The value of a header, whatever the case of its name; empty: it is not there.
std::string_view header_of(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const bool is_it =
        line.size() > name.size() && line[name.size()] == ':' &&
        std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
        });
    if (is_it) {
      const std::size_t first = line.find_first_not_of(" \t", name.size() + 1);
      return first == std::string_view::npos ? "" : line.substr(first, line.find_last_not_of(" \t") - first + 1);
    }
  }
  return "";
}

// Takes as long wherever the two differ.
bool is_same(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

// Listens at a name beside the path and renames that: so nobody finds a socket that does not listen yet.
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
  const std::string unseen = path + ".new";
  ::unlink(unseen.c_str());
  HVD_TRY_ASSIGN(Fd listener, listen_unix(unseen));
  if (::chmod(unseen.c_str(), kOwnSocket) != 0 || ::rename(unseen.c_str(), path.c_str()) != 0) {
    const Error why = Error::from_errno("cannot listen at " + path);
    ::unlink(unseen.c_str());
    return why;
  }
  return listener;
}

}  // namespace

std::string metrics_answer(std::string_view head, const std::string& token,
                           const std::function<std::string()>& metrics) {
  const std::string_view line = head.substr(0, std::min(head.find("\r\n"), head.size()));
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || !line.substr(second + 1).starts_with("HTTP/1.")) {
    return refusal("400 Bad Request");
  }
  if (!token.empty() && !is_same(header_of(head, "authorization"), "Bearer " + token)) {
    return refusal("401 Unauthorized", "WWW-Authenticate: Bearer\r\n");
  }
  if (line.substr(0, first) != "GET") {
    return refusal("405 Method Not Allowed", "Allow: GET\r\n");
  }
  const std::string_view target = line.substr(first + 1, second - first - 1);
  if (target.substr(0, target.find('?')) != "/metrics") {
    return refusal("404 Not Found");
  }
  return answer("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics());
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::listen(EventLoop& loop, const MetricsPlace& place,
                                                             std::function<std::string()> metrics) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(loop, place, std::move(metrics)));
  HVD_TRY(server->open());
  return server;
}

MetricsServer::~MetricsServer() {
  while (!callers_.empty()) {
    drop(callers_.begin()->first);
  }
  if (listener_.is_open() && !place_.socket.empty()) {
    ::unlink(place_.socket.c_str());
  }
}

Result<void> MetricsServer::open() {
  if (place_.socket.empty()) {
    HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::make(place_.ip, place_.port));
    HVD_TRY_ASSIGN(listener_, listen_tcp(address));
  } else {
    HVD_TRY_ASSIGN(listener_, listen_at_path(place_.socket));
  }
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [this](Fd fd) { take(std::move(fd)); };
  handlers.on_trouble = [](const Error&) {};  // who asks tries again
  HVD_TRY_ASSIGN(accept_, AcceptWatch::create(loop_, listener_.get(), std::move(handlers)));
  return {};
}

void MetricsServer::take(Fd fd) {
  if (callers_.size() >= kMostCallers) {
    drop(callers_.begin()->first);
  }
  const std::uint64_t number = next_caller_++;
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this, number](Bytes bytes) { on_bytes(number, bytes); };
  handlers.on_closed = [this, number](const Error&) { drop(number); };
  auto channel = ByteChannel::create(loop_, std::move(fd), Fd(), std::move(handlers));
  if (channel.ok()) {
    const TimerId timer = loop_.after(kPatience, [this, number] { drop(number); });
    callers_.emplace(number, Caller{std::move(channel).value(), "", false, timer});
  }
}

void MetricsServer::on_bytes(std::uint64_t number, Bytes bytes) {
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
  caller.channel->write(end == std::string::npos
                            ? refusal("431 Request Header Fields Too Large")
                            : metrics_answer(std::string_view(caller.head).substr(0, end + 2), place_.token, metrics_));
  caller.channel->close_output();
}

void MetricsServer::drop(std::uint64_t number) {
  if (const auto found = callers_.find(number); found != callers_.end()) {
    loop_.cancel(found->second.timer);
    callers_.erase(found);
  }
}

}  // namespace hvd::launch
