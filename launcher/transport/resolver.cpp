#include "launcher/transport/resolver.h"

#include <compare>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <netdb.h>

#include "runtime/base/thread.h"
#include "runtime/io/name_lookup.h"

namespace hvd::launch {
namespace {

Result<std::vector<SocketAddress>> look_up_usable(const std::string& host, int port, int family) {
  return look_up_name(host, port, family, AI_ADDRCONFIG);
}

}  // namespace

struct Resolver::Query {
  std::string host;
  int port = 0;
  int family = 0;
  auto operator<=>(const Query&) const = default;
};

struct Resolver::Shared {
  struct Waiter {
    Query query;
    Done done;
  };

  explicit Shared(LookUp look_up_in) : look_up(std::move(look_up_in)) {}

  // constant after construction
  const LookUp look_up;
  // guarded by mu
  std::mutex mu;
  std::condition_variable wake;
  std::deque<Query> queue;
  std::size_t idle = 0;       // threads that wait for a query
  EventLoop* loop = nullptr;  // null once the Resolver is gone
  // loop only
  std::map<std::uint64_t, Waiter> waiting;
  std::map<Query, std::vector<std::uint64_t>> asked;  // queued or being looked up, and for whom

  void deliver(std::uint64_t ticket, const Result<std::vector<SocketAddress>>& result) {
    if (auto waiter = waiting.extract(ticket); !waiter.empty()) {
      waiter.mapped().done(result);
    }
  }

  static void answer(const std::shared_ptr<Shared>& shared, const Query& query,
                     Result<std::vector<SocketAddress>> result) {
    const std::lock_guard<std::mutex> lock(shared->mu);
    if (shared->loop == nullptr) {
      return;
    }
    shared->loop->post([shared, query, result = std::move(result)] {
      if (const auto found = shared->asked.extract(query); !found.empty()) {
        for (const std::uint64_t ticket : found.mapped()) {
          shared->deliver(ticket, result);
        }
      }
    });
  }

  static void serve(const std::shared_ptr<Shared>& shared) {
    for (;;) {
      Query query;
      {
        std::unique_lock<std::mutex> lock(shared->mu);
        ++shared->idle;
        shared->wake.wait(lock, [&] { return shared->loop == nullptr || !shared->queue.empty(); });
        --shared->idle;
        if (shared->loop == nullptr) {
          return;
        }
        query = std::move(shared->queue.front());
        shared->queue.pop_front();
      }
      answer(shared, query, shared->look_up(query.host, query.port, query.family));
    }
  }
};

Resolver::Resolver(EventLoop& loop, LookUp look_up)
    : shared_(std::make_shared<Shared>(look_up ? std::move(look_up) : look_up_usable)) {
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

// Returns false when the system has no thread for us.
bool Resolver::start_thread() {
  try {
    // The thread is detached: a lookup cannot be interrupted, and the end of a job must not wait for DNS.
    hvd::start_thread("hvd-lookup", [shared = shared_] { Shared::serve(shared); }).detach();
    ++threads_;
  } catch (const std::system_error&) {
    // Those that there are serve the queue.
  }
  return threads_ > 0;
}

void Resolver::enqueue(const Query& query) {
  bool has_idle = false;
  {
    const std::lock_guard<std::mutex> lock(shared_->mu);
    shared_->queue.push_back(query);
    has_idle = shared_->queue.size() <= shared_->idle;  // one that is woken and not yet awake counts as idle
  }
  shared_->wake.notify_one();
  if (!has_idle && threads_ < kMaxThreads && !start_thread()) {
    Shared::answer(shared_, query, Error(Code::kResource, "no thread for the lookup"));
  }
}

std::uint64_t Resolver::resolve(const std::string& host, int port, int family, Done done) {
  const std::uint64_t ticket = next_ticket_++;
  const Query query{host, port, family};
  shared_->waiting.emplace(ticket, Shared::Waiter{query, std::move(done)});
  const auto [asked, is_new] = shared_->asked.try_emplace(query);
  asked->second.push_back(ticket);
  if (!is_new) {
    return ticket;
  }
  if (auto numeric = look_up_name(host, port, family, AI_NUMERICHOST); numeric.ok()) {
    Shared::answer(shared_, query, std::move(numeric));
  } else {
    enqueue(query);
  }
  return ticket;
}

void Resolver::cancel(std::uint64_t ticket) {
  const auto waiter = shared_->waiting.extract(ticket);
  if (waiter.empty()) {
    return;
  }
  const Query& query = waiter.mapped().query;
  const auto asked = shared_->asked.find(query);
  if (asked == shared_->asked.end()) {
    return;  // it is being answered
  }
  std::erase(asked->second, ticket);
  if (asked->second.empty()) {
    // Names that nobody waits for any more must not delay the others.
    const std::lock_guard<std::mutex> lock(shared_->mu);
    if (std::erase(shared_->queue, query) != 0) {
      shared_->asked.erase(asked);
    }
  }
}

}  // namespace hvd::launch
