// runtime/link/meeting: what strangers at its listeners cost.
#include "runtime/link/meeting.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/memory_store.h"

namespace hvd::meeting_test {
namespace {

constexpr std::size_t kMostCalls = 20'000;

// Each time that the meeting closes a connection, the next stranger calls. So there is always one who waits.
class CallingLog final : public Log {
 public:
  explicit CallingLog(SocketAddress address) : address_(address) {}

  void call() {
    if (++calls < kMostCalls) {
      auto fd = connect_tcp(address_, Deadline::after(std::chrono::seconds(60)));
      REQUIRE(fd.ok());
      callers_.push_back(std::move(fd).value());
      if (callers_.size() > 400) {  // the meeting has closed its end
        callers_.erase(callers_.begin());
      }
    }
  }
  void write(LogLevel level, std::string_view message) override {
    if (level >= LogLevel::kWarning) {
      warnings.emplace_back(message);
    }
    if (message.find("too many connections") != std::string_view::npos) {
      call();
    }
  }

  std::size_t calls = 0;
  std::vector<std::string> warnings;

 private:
  SocketAddress address_;
  std::vector<Fd> callers_;
};

}  // namespace

TEST_CASE("strangers that never stop calling keep a rank neither from its deadline nor from its log's other lines") {
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value(), 1024).value();
  CallingLog log(SocketAddress::local_of(listener.get()).value());
  MemoryStore store(MemoryHub::create(2, JobSecret{}).value(), 0);
  for (int i = 0; i < 300; ++i) {  // more than may be unproven at a time
    log.call();
  }
  {
    Meeting meeting(0, store, log, Deadline::after(std::chrono::milliseconds(200)), {});
    meeting.add_listener(listener.get(), true);
    meeting.expect(LinkRole::kControl, 1);
    const auto met = meeting.run();
    REQUIRE_FALSE(met.ok());
    CHECK(met.error().code() == Code::kTimeout);
  }
  CHECK(log.calls < kMostCalls);
  CHECK(log.warnings.size() <= 33);
  CHECK(log.warnings.back().find(" more connections that proved nothing") != std::string::npos);
}

TEST_CASE("errors name the ranks of a process set as the job does") {
  NullLog log;
  MemoryStore store(MemoryHub::create(2, JobSecret{}).value(), 0);
  Meeting meeting(0, store, log, Deadline::after(std::chrono::milliseconds(1)), {{}, false, {4, 7}});
  meeting.expect(LinkRole::kData, 1);
  const auto met = meeting.run();
  REQUIRE_FALSE(met.ok());
  CHECK(met.error().message() == "rank 4 could not meet all ranks in time; missing: data connection from rank 7");
}

}  // namespace hvd::meeting_test
