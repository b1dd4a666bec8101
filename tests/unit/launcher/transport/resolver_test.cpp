#include "launcher/transport/resolver.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include <doctest/doctest.h>

namespace hvd::launch::resolver_test {
namespace {

using Addresses = Result<std::vector<SocketAddress>>;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(300));
}

// A name server that answers when the test lets it. Shared with threads that may outlive the test.
struct NameServer {
  std::mutex mu;
  std::condition_variable changed;
  bool is_open = false;
  std::size_t now = 0;   // lookups in progress
  std::size_t most = 0;  // the most there were
  std::map<std::string, int> asked;

  Addresses look_up(const std::string& host, int port) {
    std::unique_lock<std::mutex> lock(mu);
    ++asked[host];
    most = std::max(most, ++now);
    changed.notify_all();
    changed.wait(lock, [this] { return is_open; });
    --now;
    changed.notify_all();
    return host == "nobody" ? Addresses(Error(Code::kNotFound, "no such name"))
                            : Addresses({SocketAddress::make("10.0.0.1", static_cast<std::uint16_t>(port)).value()});
  }
  bool wait_for(std::size_t lookups) {
    std::unique_lock<std::mutex> lock(mu);
    return changed.wait_until(lock, soon().at(), [&] { return now == lookups; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mu);
    is_open = true;
    changed.notify_all();
  }
};

struct Asker {
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::shared_ptr<NameServer> server = std::make_shared<NameServer>();
  std::unique_ptr<Resolver> resolver = std::make_unique<Resolver>(
      *loop, [server = server](const std::string& host, int port, int) { return server->look_up(host, port); });
  std::vector<std::string> answers;

  Asker() = default;
  ~Asker() { server->open(); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  std::uint64_t ask(const std::string& host, int port = 22) {
    return resolver->resolve(host, port, AF_UNSPEC, [this, host](Addresses found) {
      answers.push_back(host + " " + (found.ok() ? found.value().front().text() : found.error().message()));
    });
  }
  void wait_for_answers(std::size_t count) const {
    const Deadline deadline = soon();
    while (answers.size() < count && !deadline.has_passed()) {
      REQUIRE(loop->turn(deadline).ok());
    }
    CHECK(answers.size() == count);
  }
};

TEST_CASE("several names are looked up at once, so that one that takes long does not hold up the others") {
  Asker asker;
  constexpr std::size_t kNames = Resolver::kMaxThreads + 4;
  for (std::size_t i = 0; i < kNames; ++i) {
    asker.ask("host" + std::to_string(i));
  }
  CHECK(asker.server->wait_for(Resolver::kMaxThreads));
  asker.server->open();
  asker.wait_for_answers(kNames);
  CHECK(asker.server->most == Resolver::kMaxThreads);
  CHECK(asker.server->asked.size() == kNames);
}

TEST_CASE("a name that several wait for is asked once, and all are answered in their order") {
  Asker asker;
  asker.ask("one");
  asker.ask("nobody");
  const auto unwanted = asker.ask("one");
  asker.ask("one");
  asker.ask("one", 2222);
  CHECK(asker.server->wait_for(3));
  asker.resolver->cancel(unwanted);
  asker.server->open();
  asker.wait_for_answers(4);
  CHECK(asker.server->asked == std::map<std::string, int>{{"one", 2}, {"nobody", 1}});
  std::sort(asker.answers.begin(), asker.answers.end());
  CHECK(asker.answers ==
        std::vector<std::string>{"nobody no such name", "one 10.0.0.1:22", "one 10.0.0.1:22", "one 10.0.0.1:2222"});
  asker.ask("one");  // nothing is remembered: addresses change
  asker.wait_for_answers(5);
  CHECK(asker.server->asked["one"] == 3);
}

TEST_CASE("a name that nobody waits for any more leaves the queue, and one in progress takes new askers") {
  Asker asker;
  std::vector<std::uint64_t> tickets;
  for (std::size_t i = 0; i < Resolver::kMaxThreads; ++i) {
    tickets.push_back(asker.ask("host" + std::to_string(i)));
  }
  CHECK(asker.server->wait_for(Resolver::kMaxThreads));
  asker.resolver->cancel(asker.ask("queued"));
  asker.resolver->cancel(tickets[0]);
  asker.ask("host0");
  asker.ask("last");
  asker.server->open();
  asker.wait_for_answers(Resolver::kMaxThreads + 1);
  CHECK(asker.server->asked.count("queued") == 0);
  CHECK(asker.server->asked["host0"] == 1);
  CHECK(asker.server->asked["last"] == 1);
}

TEST_CASE("an address needs no lookup") {
  Asker asker;
  asker.ask("10.0.0.7");
  asker.ask("10.0.0.7");
  CHECK(asker.answers.empty());  // never from inside resolve()
  asker.wait_for_answers(2);
  CHECK(asker.answers[0] == "10.0.0.7 10.0.0.7:22");
  CHECK(asker.server->asked.empty());
}

TEST_CASE("a resolver that is gone waits for no lookup and answers nobody") {
  Asker asker;
  asker.ask("one");
  CHECK(asker.server->wait_for(1));
  asker.resolver.reset();
  asker.server->open();
  CHECK(asker.server->wait_for(0));
  REQUIRE(asker.loop->turn(Deadline::after(Duration::zero())).ok());
  CHECK(asker.answers.empty());
}

}  // namespace

}  // namespace hvd::launch::resolver_test
