#include "launcher/transport/resolver.h"

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <netdb.h>

namespace hvd::launch {
namespace {

Code code_of(int gai) {
  switch (gai) {
    case EAI_NONAME:
    case EAI_NODATA:
      return Code::kNotFound;
    case EAI_AGAIN:
      return Code::kUnreachable;
    case EAI_MEMORY:
      return Code::kResource;
    default:
      return Code::kSystem;
  }
}

Result<std::vector<SocketAddress>> look_up(const std::string& host, int port, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failed != 0) {
    return Error(code_of(failed), ::gai_strerror(failed));
  }
  std::vector<SocketAddress> addresses;
  std::string ip(NI_MAXHOST, '\0');
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (::getnameinfo(at->ai_addr, at->ai_addrlen, ip.data(), static_cast<socklen_t>(ip.size()), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
      continue;
    }
    auto address = SocketAddress::make(ip.c_str(), static_cast<std::uint16_t>(port));
    if (address.ok()) {
      addresses.push_back(address.value());
    }
  }
  ::freeaddrinfo(list);
  if (addresses.empty()) {
    return Error(Code::kNotFound, "no IPv4 or IPv6 address");
  }
  return addresses;
}

}  // namespace

struct Resolver::Query {
  std::uint64_t ticket = 0;
  std::string host;
  int port = 0;
  int family = 0;
};

struct Resolver::Shared {
  // guarded by mu
  std::mutex mu;
  std::condition_variable wake;
  std::deque<Query> queue;
  EventLoop* loop = nullptr;  // null once the Resolver is gone
  // loop only
  std::map<std::uint64_t, Done> waiting;

  static void answer(const std::shared_ptr<Shared>& shared, std::uint64_t ticket,
                     Result<std::vector<SocketAddress>> result) {
    const std::lock_guard<std::mutex> lock(shared->mu);
    if (shared->loop == nullptr) {
      return;
    }
    shared->loop->post([shared, ticket, result = std::move(result)] {
      const auto found = shared->waiting.find(ticket);
      if (found != shared->waiting.end()) {
        const Done done = std::move(found->second);
        shared->waiting.erase(found);
        done(result);
      }
    });
  }

  static void serve(const std::shared_ptr<Shared>& shared) {
    for (;;) {
      Query query;
      {
        std::unique_lock<std::mutex> lock(shared->mu);
        shared->wake.wait(lock, [&] { return shared->loop == nullptr || !shared->queue.empty(); });
        if (shared->loop == nullptr) {
          return;
        }
        query = std::move(shared->queue.front());
        shared->queue.pop_front();
      }
      answer(shared, query.ticket, look_up(query.host, query.port, query.family, AI_ADDRCONFIG));
    }
  }
};

Resolver::Resolver(EventLoop& loop) : loop_(loop), shared_(std::make_shared<Shared>()) {
  shared_->loop = &loop;
}

Resolver::~Resolver() {
  {
    const std::lock_guard<std::mutex> lock(shared_->mu);
    shared_->loop = nullptr;
  }
  shared_->waiting.clear();
  shared_->wake.notify_all();
}

void Resolver::start_thread() {
  // Signals belong to the loop's signalfd: this thread must take none of them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // Detached: a lookup cannot be interrupted, and the end of a job must not wait for DNS.
  std::thread([shared = shared_] { Shared::serve(shared); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  has_thread_ = true;
}

std::uint64_t Resolver::resolve(const std::string& host, int port, int family, Done done) {
  const std::uint64_t ticket = next_ticket_++;
  shared_->waiting.emplace(ticket, std::move(done));
  auto numeric = look_up(host, port, family, AI_NUMERICHOST);
  if (numeric.ok()) {
    Shared::answer(shared_, ticket, std::move(numeric));
    return ticket;
  }
  if (!has_thread_) {
    start_thread();
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mu);
    shared_->queue.push_back({ticket, host, port, family});
  }
  shared_->wake.notify_one();
  return ticket;
}

void Resolver::cancel(std::uint64_t ticket) {
  if (shared_->waiting.erase(ticket) != 0) {
    // Names that nobody waits for any more do not keep the others waiting.
    const std::lock_guard<std::mutex> lock(shared_->mu);
    std::erase_if(shared_->queue, [ticket](const Query& query) { return query.ticket == ticket; });
  }
}

}  // namespace hvd::launch
