#include "launcher/live/live_server.h"

#include <unistd.h>

#include <utility>

#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

// A caller that connects and asks nothing, or that does not leave after its answer, is dropped after this.
constexpr auto kCallerTime = std::chrono::seconds(10);
// A caller that leaves so many bytes unread is dropped, since they would stay in hvdrun's memory.
constexpr std::size_t kMostPending = 64U << 20U;
constexpr std::size_t kMostCallers = 64;

}  // namespace

Result<std::unique_ptr<LiveServer>> LiveServer::listen(EventLoop& loop, const LiveFolder& folder, LiveJob job,
                                                       Log& log) {
  HVD_TRY(folder.make());
  const std::string path = folder.socket_of(job.id);
  // A command takes a socket at which nobody listens for that of a killed hvdrun, and removes it. So nobody sees it
  // before it listens.
  HVD_TRY_ASSIGN(Fd listener, replace_unix_listener(path));
  std::unique_ptr<LiveServer> server(new LiveServer(loop, std::move(listener), path, std::move(job), log));
  LiveServer* self = server.get();
  AcceptWatch::Handlers handlers;
  handlers.on_connection = [self](Fd connection) { self->on_connection(std::move(connection)); };
  handlers.on_trouble = [&log](const Error& why) {
    log.write(LogLevel::kDebug, "commands cannot ask this job for now: " + why.message());
  };
  HVD_TRY_ASSIGN(server->accepting_, AcceptWatch::create(loop, server->listener_.get(), std::move(handlers)));
  return server;
}

LiveServer::LiveServer(EventLoop& loop, Fd listener, std::string path, LiveJob job, Log& log)
    : loop_(loop),
      listener_(std::move(listener)),
      path_(std::move(path)),
      job_(std::move(job)),
      log_(log),
      scope_(loop) {
  on_question(LiveMessage::kAskJob, [this](CallerId caller, std::string_view) -> Result<void> {
    send(caller, LiveMessage::kJob, job_.encode());
    over(caller);
    return {};
  });
}

LiveServer::~LiveServer() {
  accepting_.reset();
  for (const auto& [id, caller] : callers_) {
    loop_.cancel(caller.timer);
  }
  ::unlink(path_.c_str());
}

void LiveServer::on_connection(Fd connection) {
  if (!is_peer_trusted(connection.get())) {
    log_.write(LogLevel::kDebug, "another user has tried to ask this job");
    return;
  }
  if (callers_.size() >= kMostCallers) {
    return;
  }
  const CallerId id = next_id_++;
  ByteChannel::Handlers handlers;
  handlers.on_bytes = [this, id](Bytes bytes) { on_bytes(id, bytes); };
  handlers.on_closed = [this, id](const Error&) { drop(id); };
  auto channel = ByteChannel::create(loop_, std::move(connection), Fd(), std::move(handlers));
  if (!channel.ok()) {
    return;
  }
  Caller& caller = callers_[id];
  caller.channel = std::move(channel).value();
  caller.timer = loop_.after(kCallerTime, [this, id] { drop(id); });
}

void LiveServer::on_bytes(CallerId id, Bytes bytes) {
  const auto found = callers_.find(id);
  if (found == callers_.end() || found->second.has_asked) {
    return;  // after its question a caller has nothing to say
  }
  Caller& caller = found->second;
  caller.decoder.feed(bytes);
  const auto next = caller.decoder.next();
  if (!next.ok()) {
    log_.write(LogLevel::kDebug, "a command asked this job in a way that is not known: " + next.error().message());
    return drop(id);
  }
  if (!next.value()) {
    return;
  }
  caller.has_asked = true;
  loop_.cancel(std::exchange(caller.timer, 0));
  const auto handler = handlers_.find(static_cast<LiveMessage>(next.value()->type));
  if (handler == handlers_.end()) {
    return refuse(id, "the job cannot answer this question; it may run another version of hvdrun, or is ending");
  }
  if (const auto asked = handler->second(id, next.value()->body); !asked.ok()) {
    refuse(id, asked.error().message());
  }
}

void LiveServer::send(CallerId id, LiveMessage type, std::string_view body) {
  const auto found = callers_.find(id);
  if (found == callers_.end()) {
    return;
  }
  if (found->second.channel->pending() > kMostPending) {
    scope_.post([this, id] { drop(id); });
    return;
  }
  found->second.channel->write(make_frame(kLiveFrames, static_cast<std::uint16_t>(type), body));
}

void LiveServer::over(CallerId id) {
  send(id, LiveMessage::kOver, "");
  if (const auto found = callers_.find(id); found != callers_.end()) {
    found->second.channel->close_output();
    loop_.cancel(found->second.timer);
    found->second.timer = loop_.after(kCallerTime, [this, id] { drop(id); });
  }
}

void LiveServer::refuse(CallerId id, const std::string& why) {
  send(id, LiveMessage::kRefused, why);
  over(id);
}

void LiveServer::drop(CallerId id) {
  if (const auto found = callers_.find(id); found != callers_.end()) {
    loop_.cancel(found->second.timer);
    callers_.erase(found);
  }
}

}  // namespace hvd::launch
