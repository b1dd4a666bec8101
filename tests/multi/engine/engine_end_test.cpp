// How jobs end: ranks that leave, die, vanish or fork; and that nothing stays behind or stays awake.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_end_test {
namespace {

// Context switches of every engine thread, by thread id.
std::map<std::string, std::string> engine_switches() {
  std::map<std::string, std::string> switches;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name != "hvd-engine") {
      continue;
    }
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("voluntary_ctxt_switches")) {
        switches[task.path().filename()] = line;
      }
    }
  }
  return switches;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// Waits until a thread that says who it is sleeps; false: not by the deadline.
bool is_asleep(const std::atomic<pid_t>& thread) {
  const Deadline deadline = test_deadline();
  std::string state;
  while (!state.starts_with("State:\tS") && !deadline.has_passed()) {
    std::this_thread::yield();
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    while (std::getline(status, state) && !state.starts_with("State:")) {
    }
  }
  return !deadline.has_passed();
}

// ForgetfulBackend has no memory for an allreduce on rank 1. On the others it waits for what becomes of the job.
class ForgetfulBackend final : public Backend {
 public:
  explicit ForgetfulBackend(int rank) : rank_(rank) {}
  Result<void> allreduce(void* /*data*/, std::size_t /*count*/, Dtype /*dtype*/, ReduceOp /*op*/,
                         Interrupt& interrupt) override {
    if (rank_ == 1) {
      throw std::bad_alloc();
    }
    for (;;) {
      HVD_TRY(interrupt.check());
      std::this_thread::yield();
    }
  }
  Result<void> adasum(std::span<const MutableBytes> /*tensors*/, Dtype /*dtype*/, std::span<const int> /*averaged*/,
                      Interrupt& /*interrupt*/) override {
    return {};
  }
  Result<void> broadcast(void* /*data*/, std::size_t /*bytes*/, int /*root*/, Interrupt& /*interrupt*/) override {
    return {};
  }
  Result<void> allgather(const void* /*input*/, std::span<const std::size_t> /*sizes*/, void* /*out*/,
                         Interrupt& /*interrupt*/) override {
    return {};
  }
  Result<void> reducescatter(const void* /*input*/, std::span<const std::size_t> /*sizes*/, void* /*out*/,
                             Dtype /*dtype*/, ReduceOp /*op*/, Interrupt& /*interrupt*/) override {
    return {};
  }
  Result<void> alltoall(const void* /*input*/, std::span<const std::size_t> /*sizes*/, void* /*out*/,
                        Interrupt& /*interrupt*/) override {
    return {};
  }
  Result<void> barrier(Interrupt& /*interrupt*/) override { return {}; }

 private:
  int rank_;
};

class ForgetfulMaker final : public BackendMaker {
 public:
  Result<std::unique_ptr<Backend>> make(int /*process_set*/, const std::vector<int>& /*ranks*/, Mesh& mesh) override {
    return std::unique_ptr<Backend>(std::make_unique<ForgetfulBackend>(mesh.map().rank));
  }
  [[nodiscard]] bool keeps_quick_path() const override { return false; }
};

// ForgetfulStore has no memory for the first notice.
class ForgetfulStore final : public Store {
 public:
  ForgetfulStore(std::shared_ptr<MemoryHub> hub, int rank) : store_(std::move(hub), rank) {}
  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override {
    return store_.exchange_while(key, value, deadline, interrupt);
  }
  [[nodiscard]] const JobSecret& secret() const override { return store_.secret(); }
  [[nodiscard]] int notice_fd() const override { return store_.notice_fd(); }
  std::optional<Notice> poll_notice() override {
    const auto notice = store_.poll_notice();
    if (notice && !std::exchange(has_thrown_, true)) {
      throw std::bad_alloc();
    }
    return notice;
  }

 private:
  MemoryStore store_;
  bool has_thrown_ = false;
};

// Waits until the engine threads have settled: until two samples 300 ms apart are the same.
bool are_engines_asleep() {
  for (const Deadline deadline = test_deadline(); !deadline.has_passed();) {
    const auto before = engine_switches();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // sleeps: time is the point
    if (engine_switches() == before) {
      return true;
    }
  }
  return false;
}

// Returns what three ranks hear when one of them joins, but its process "dies": its links just close. It returns
// nothing where the notice came too late, as it may on a busy machine, for the second that the others wait for a cause.
std::optional<std::vector<Outcome>> outcomes_without(int lost, bool has_notice) {
  EngineJob job({2, 1});
  job.stop();
  std::unique_ptr<Mesh> mesh;
  std::thread joiner([&] {
    NullLog log;
    MemoryStore store(job.shared_hub(), lost);
    auto joined = Mesh::join(job.map(lost), store, job.mesh_options(lost), log, test_deadline());
    REQUIRE(joined.ok());
    mesh = std::move(joined).value();
  });
  job.start([&](int rank) { return rank != lost; });
  joiner.join();
  bool comes_in_time = true;
  std::vector<Outcome> outcomes(3);
  on_all(3, [&](int rank) {
    if (rank == lost) {
      const Deadline moment = Deadline::after(std::chrono::milliseconds(900));
      mesh.reset();
      if (has_notice) {
        job.hub().notify_all("rank " + std::to_string(lost) + " was killed by signal 9 (SIGKILL)");
      }
      comes_in_time = !moment.has_passed();
      return;
    }
    FloatOp op("x", 4, 1.0F);
    outcomes[static_cast<std::size_t>(rank)] = op.run(job.at(rank));
  });
  return comes_in_time || !has_notice ? std::optional(outcomes) : std::nullopt;
}

}  // namespace

TEST_CASE("engines with nothing to do do not wake up") {
  EngineJob job({2, 2});
  on_all(4, [&](int rank) {
    FloatOp op("x", 100, 1.0F);
    CHECK(op.run(job.at(rank)).status == HVD_OK);
  });
  CHECK(engine_switches().size() == 4);
  CHECK(are_engines_asleep());
  // Nor while one waits for the others,
  FloatOp lonely("lonely", 4, 1.0F);
  REQUIRE(lonely.start(job.at(1)).status == HVD_OK);
  CHECK(are_engines_asleep());
  // nor when the job has been shut down by one, and the others' contexts still exist.
  job.leave(3);
  CHECK(lonely.wait(job.at(1)).status == HVD_LOST_PEER);
  CHECK(are_engines_asleep());
}

TEST_CASE("a notice ends everything on all ranks with its cause, within 5 s") {
  for (const Nodes& nodes : all_layouts()) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    const std::string cause = "rank 7 on node3 was killed by signal 9 (SIGKILL)";
    // All have begun before anyone is told: one that came later would be refused, rightly.
    std::vector<std::unique_ptr<FloatOp>> ops;
    for (int rank = 0; rank < job.size(); ++rank) {
      ops.push_back(std::make_unique<FloatOp>("of rank " + std::to_string(rank), 4, 1.0F));
      CHECK((job.size() == 1 || ops.back()->start(job.at(rank)).status == HVD_OK));
    }
    job.hub().notify(job.size() - 1, cause);  // one is told; the others hear it from the coordinator
    on_all(job.size(), [&](int rank) {
      if (job.size() > 1) {
        const Outcome got = ops[static_cast<std::size_t>(rank)]->wait(job.at(rank));
        CHECK(got.status == HVD_LOST_PEER);
        CHECK(got.error == cause);
        FloatOp later("later", 4, 1.0F);
        CHECK(later.run(job.at(rank)).error == cause);
      }
    });
  }
}

TEST_CASE("a rank that leaves cancels its own work, and the others learn who left") {
  for (const Nodes& nodes : {Nodes{3}, Nodes{1, 2}}) {
    for (const int leaver : {0, 1, 2}) {
      CAPTURE(leaver);
      EngineJob job(nodes);
      std::barrier<> all(3);
      on_all(3, [&](int rank) {
        FloatOp op(rank == leaver ? "mine" : "theirs", 4, 1.0F);
        const Outcome started = op.start(job.at(rank));
        all.arrive_and_wait();  // nobody leaves before
        REQUIRE(started.status == HVD_OK);
        if (rank == leaver) {
          std::atomic<pid_t> waiting = 0;
          std::thread waiter([&, ctx = job.at(rank)] {
            waiting = static_cast<pid_t>(::syscall(SYS_gettid));
            const Outcome got = op.wait(ctx);
            // The wait may begin when the context is gone already only by a defect of this test: it holds the handle.
            CHECK(got.status == HVD_CANCELLED);
            CHECK(got.says("'mine'"));
          });
          CHECK(is_asleep(waiting));
          job.leave(rank);
          waiter.join();
        } else {
          const Outcome got = op.wait(job.at(rank));
          CHECK(got.status == HVD_LOST_PEER);
          CHECK(got.says("Horovod has been shut down by rank " + std::to_string(leaver)));
          FloatOp later("later", 4, 1.0F);
          CHECK(later.run(job.at(rank)).says("Horovod has been shut down by rank " + std::to_string(leaver)));
        }
      });
    }
  }
}

TEST_CASE("what all ranks asked for before one left is still done") {
  for (int round = 0; round < 20; ++round) {
    EngineJob job({2, 1});
    on_all(3, [&](int rank) {
      FloatOp op("x", 50'000, 1.0F);
      REQUIRE(op.start(job.at(rank)).status == HVD_OK);
      CHECK(op.wait(job.at(rank)).status == HVD_OK);
      CHECK(op.output.back() == 3.0F);
      job.leave(rank);
    });
  }
}

TEST_CASE("a rank that vanishes without a word is named after a moment; a notice says it better") {
  for (const bool has_notice : {false, true}) {
    for (const int lost : {0, 2}) {
      CAPTURE(lost);
      const Deadline deadline = test_deadline();
      auto outcomes = outcomes_without(lost, has_notice);
      while (!outcomes) {
        REQUIRE(!deadline.has_passed());
        outcomes = outcomes_without(lost, has_notice);
      }
      for (int rank = 0; rank < 3; ++rank) {
        const Outcome& got = (*outcomes)[static_cast<std::size_t>(rank)];
        if (rank != lost) {
          CHECK(got.status == HVD_LOST_PEER);
          CHECK(got.says("rank " + std::to_string(lost)));
          CHECK(got.says("SIGKILL") == has_notice);
        }
      }
    }
  }
}

TEST_CASE("a rank that is lost inside a collective does not leave the others in it") {
  EngineJob job({2, 2});
  const std::string cause = "rank 3 was killed by signal 9 (SIGKILL)";
  on_all(4, [&](int rank) {
    for (int i = 0;; ++i) {
      FloatOp op("t" + std::to_string(i), 200'000, 1.0F);
      const Outcome got = op.run(job.at(rank));
      if (got.status != HVD_OK) {
        CHECK(got.status == HVD_LOST_PEER);
        CHECK(got.error == cause);
        break;
      }
      if (rank == 3 && i == 5) {
        job.hub().notify_all(cause);
      }
    }
  });
}

TEST_CASE("a rank that has no memory for an operation ends the job by its number, and its own call returns") {
  EngineOptions options;
  options.backends = std::make_shared<ForgetfulMaker>();
  EngineJob job({2}, options);
  on_all(2, [&](int rank) {
    FloatOp op("x", 4, 1.0F);
    const Outcome got = op.run(job.at(rank));
    CHECK(got.status != HVD_OK);
    CHECK(got.error.find("rank 1: out of memory") != std::string::npos);
  });
}

TEST_CASE("a rank that has no memory for a message ends the job by its number, whichever thread runs its engine") {
  for (const bool drives : {false, true}) {
    CAPTURE(drives);
    const auto hub = MemoryHub::create(2, make_secret(1)).value();
    ScratchDir scratch;
    std::barrier<> all(2);
    on_all(2, [&](int rank) {
      Config config;
      config.map = map_of({2}, rank);
      config.engine.mesh.node_address = "127.0.0.1";
      config.engine.mesh.scratch_dir = scratch.path();
      config.log_level = LogLevel::kError;
      auto made = make_context(std::move(config), std::make_unique<ForgetfulStore>(hub, rank));
      REQUIRE(made.ok());
      const std::unique_ptr<hvd_ctx> ctx = std::move(made).value();
      FloatOp op("of rank " + std::to_string(rank), 4, 1.0F);
      REQUIRE(op.start(ctx.get()).status == HVD_OK);
      const auto check_end = [&] {
        const Outcome got = op.wait(ctx.get());
        CHECK(got.status != HVD_OK);
        CHECK(got.says("rank 1: out of memory while the rank acted on what it was told"));
      };
      std::atomic<pid_t> waiting = 0;
      std::thread driver([&] {
        if (drives) {
          waiting = static_cast<pid_t>(::syscall(SYS_gettid));
          check_end();
        }
      });
      CHECK((!drives || is_asleep(waiting)));
      all.arrive_and_wait();  // both have begun, and each waits for the other one
      if (rank == 1) {
        hub->notify(rank, "it is not heard");
      }
      driver.join();
      if (!drives) {
        const Deadline deadline = test_deadline();
        for (std::int32_t done = 0; done == 0 && !deadline.has_passed(); std::this_thread::yield()) {
          static_cast<void>(hvd_poll(ctx.get(), op.handle, &done));
        }
        check_end();
      }
      all.arrive_and_wait();
    });
  }
}

TEST_CASE("jobs come and go without leaving descriptors") {
  EngineJob job({2});
  job.stop();
  const auto before = open_descriptors();
  for (int round = 0; round < 200; ++round) {
    job.start();
    on_all(2, [&](int rank) {
      FloatOp op("x", 4, 1.0F);
      CHECK(op.run(job.at(rank)).status == HVD_OK);
      job.leave(rank);
    });
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a job of one rank comes and goes a thousand times") {
  EngineJob job({1});
  job.stop();
  const auto before = open_descriptors();
  for (int round = 0; round < 1000; ++round) {
    job.start();
    FloatOp op("x", 4, 3.0F);
    op.op.postscale = 2.0;
    op.op.reduce_op = HVD_AVERAGE;
    REQUIRE(op.run(job.at(0)).status == HVD_OK);
    REQUIRE(op.output == std::vector<float>(4, 6.0F));
    job.leave(0);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("ranks that have nothing pending log nothing when others leave or the job is over") {
  const auto hub = MemoryHub::create(3, make_secret(2)).value();
  struct Forward final : Log {
    LinesLog& lines;
    explicit Forward(LinesLog& all) : lines(all) {}
    void write(LogLevel level, std::string_view message) override {
      if (level >= LogLevel::kInfo) {
        lines.write(level, message);
      }
    }
  };
  LinesLog lines;
  ScratchDir scratch;
  const auto run = [&](const std::function<void(int, std::unique_ptr<Engine>&)>& end) {
    on_all(3, [&](int rank) {
      EngineOptions options;
      options.mesh.scratch_dir = scratch.path();
      auto engine = Engine::start(map_of({3}, rank), std::make_unique<MemoryStore>(hub, rank), options,
                                  std::make_unique<Forward>(lines), test_deadline());
      REQUIRE(engine.ok());
      std::unique_ptr<Engine> owned = std::move(engine).value();
      end(rank, owned);
    });
  };
  run([](int rank, std::unique_ptr<Engine>& engine) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * rank));  // sleeps: ranks leave one after the other
    engine.reset();
  });
  run([](int rank, std::unique_ptr<Engine>& engine) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * (2 - rank)));  // sleeps: ranks leave one after the other
    engine.reset();
  });
  run([&](int rank, std::unique_ptr<Engine>& engine) {
    hub->notify(rank, "rank 1 was killed");
    engine.reset();
  });
  for (const std::string& line : lines.lines()) {
    CHECK(line == "");
  }
}

TEST_CASE("a forked child gets errors at once, and its exit does not disturb the job") {
  EngineJob job({2});
  FloatOp pending("pending", 4, 1.0F);
  REQUIRE(pending.start(job.at(0)).status == HVD_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    FloatOp op("x", 4, 1.0F);
    std::int32_t done = 0;
    const bool is_right = op.start(job.at(0)).status == HVD_NOT_INITIALIZED &&
                          pending.wait(job.at(0)).status == HVD_NOT_INITIALIZED &&
                          hvd_poll(job.at(0), pending.handle, &done) == HVD_NOT_INITIALIZED &&
                          hvd_release(job.at(0), pending.handle) == HVD_NOT_INITIALIZED && hvd_rank(job.at(0)) == 0;
    job.leave(0);
    ::_exit(is_right ? 7 : 8);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  FloatOp other("pending", 4, 1.0F);
  CHECK(other.run(job.at(1)).status == HVD_OK);
  CHECK(pending.wait(job.at(0)).status == HVD_OK);
}

}  // namespace hvd::test::engine_end_test
