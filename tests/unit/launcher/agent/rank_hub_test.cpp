// launcher/agent: the agent's socket for its ranks, with calls of libhvd's own client.
#include "launcher/agent/rank_hub.h"

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "runtime/rendezvous/store_client.h"

using namespace hvd;          // NOLINT(google-build-using-namespace)
using namespace hvd::launch;  // NOLINT(google-build-using-namespace)

namespace {

class Words final : public Log {
 public:
  void write(LogLevel, std::string_view message) override { said += std::string(message) + "\n"; }
  std::string said;
};

struct Node {
  Node() {
    std::string name = "/tmp/hvd-hub-XXXXXX";
    folder = ::mkdtemp(name.data()) != nullptr ? name : "";
    RankHub::Sink sink;
    sink.on_joined = [this](int rank, std::uint32_t generation, bool is_waiting) {
      heard.push_back("rank " + std::to_string(rank) + (is_waiting ? " waits" : " joined") + " in generation " +
                      std::to_string(generation));
    };
    sink.on_exchange = [](int, std::uint32_t, const std::string&, const std::string&) {};
    sink.on_failure = [this](int rank, std::uint32_t, const FailureNews& news) {
      heard.push_back("rank " + std::to_string(rank) + ": " + news.what);
    };
    hub = RankHub::listen(*loop, path(), sink, log).value();
    hub->admit({"token", {}, 4});
  }
  ~Node() {
    hub.reset();
    std::filesystem::remove_all(folder);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] std::string path() const { return folder + "/agent"; }
  // As a process of a rank would; its connection is closed again when this returns.
  [[nodiscard]] bool tell(int rank, int by, const std::string& what, const std::string& token = "token") const {
    const FailureNews news{FailureNews::Kind::kEnds, by, 1, what};
    return StoreClient::tell_once(path(), token, rank, news, Deadline::after(std::chrono::seconds(300))).ok();
  }

  SteadyClock clock;
  Words log;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::string folder;
  std::vector<std::string> heard;
  std::unique_ptr<RankHub> hub;
};

}  // namespace

TEST_CASE("what a rank told before it ended is known without another turn of the loop") {
  Node node;
  CHECK(node.tell(2, -1, "ValueError: first"));
  CHECK(node.tell(3, 2, "HorovodInternalError: second"));
  CHECK(node.heard.empty());
  node.hub->catch_up();
  CHECK(node.heard == std::vector<std::string>{"rank 2: ValueError: first", "rank 3: HorovodInternalError: second"});
  node.hub->catch_up();
  CHECK(node.heard.size() == 2);
  CHECK(node.log.said.empty());
}

TEST_CASE("a visitor without the job's token, of no rank, or that speaks of none, is not heard") {
  Node node;
  CHECK(node.tell(2, -1, "x", "another token"));
  CHECK(node.tell(4, -1, "x"));
  CHECK(node.tell(2, 4, "x"));
  node.hub->catch_up();
  CHECK(node.heard.empty());
  CHECK(node.log.said.find("did not show this job's token") != std::string::npos);
  CHECK(node.log.said.find("calls itself rank 4 in a job of 4") != std::string::npos);
  CHECK(node.log.said.find("speaks of rank 4 in a job of 4") != std::string::npos);
}
