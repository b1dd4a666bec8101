// Ranks that die in the middle of a collective: the others get kLostPeer, and not kTimeout at the job's deadline.
#include <doctest/doctest.h>

#include "tests/multi/thread_job.h"

namespace hvd::failure_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::size_t kCount = 20'000;

// As of several tensors, which are gone when it has failed.
Result<void> one_of_pieces(Rank& rank, std::vector<float>& data) {
  std::vector<std::vector<float>> tensors(20, std::vector<float>(data.size() / 20, 1.0F));
  std::vector<Piece> pieces;
  for (std::vector<float>& tensor : tensors) {
    pieces.push_back(Piece{tensor.data(), tensor.data(), tensor.size() * sizeof(float)});
  }
  return rank.backend.allreduce_pieces(pieces, Dtype::kFloat32, ReduceOp::kMax, {}, rank.interrupt);
}

Result<void> one_allreduce(Rank& rank, std::vector<float>& data) {
  return rank.backend.allreduce(data.data(), data.size(), Dtype::kFloat32, ReduceOp::kMax, rank.interrupt);
}

Result<void> one_reducescatter(Rank& rank, std::vector<float>& data) {
  std::vector<float> out(data.size());
  const auto size = static_cast<std::size_t>(rank.map.size);
  const std::vector<std::size_t> sizes(size, data.size() / size * sizeof(float));
  return rank.backend.reducescatter(data.data(), sizes, out.data(), Dtype::kFloat32, ReduceOp::kMax, rank.interrupt);
}

Result<void> one_alltoall(Rank& rank, std::vector<float>& data) {
  std::vector<float> out(data.size());
  const auto size = static_cast<std::size_t>(rank.map.size);
  const std::vector<std::size_t> sizes(size * size, data.size() / size * sizeof(float));
  return rank.backend.alltoall(data.data(), sizes, out.data(), rank.interrupt);
}

using Operation = Result<void> (*)(Rank&, std::vector<float>&);
constexpr Operation kOperations[] = {one_allreduce, one_reducescatter, one_alltoall, one_of_pieces};

// Works until it fails, or for `rounds`.
Result<void> work(Rank& rank, int rounds, Operation operation = one_allreduce) {
  std::vector<float> data(kCount, 1.0F);
  for (int i = 0; i < rounds; ++i) {
    HVD_TRY(operation(rank, data));
  }
  return {};
}

constexpr int kForever = 1'000'000'000;

void require_lost_peer(const std::optional<Error>& error, int rank) {
  INFO("rank " << rank << ": " << (error ? error->message() : "no error"));
  REQUIRE(error.has_value());
  CHECK(error->code() == Code::kLostPeer);
}

}  // namespace

TEST_CASE("a rank that leaves in the middle of the work ends all others with kLostPeer") {
  for (const Nodes& nodes : {Nodes{2}, Nodes{4}, Nodes{1, 1}, Nodes{2, 2}, Nodes{1, 1, 1}, Nodes{3, 1}}) {
    const int size = rank_count(nodes);
    for (std::size_t i = 0; i < 2 * std::size(kOperations); ++i) {
      const int dying = i % 2 == 0 ? 0 : size - 1;
      const Operation operation = kOperations[i / 2];
      CAPTURE(text_of(nodes));
      CAPTURE(dying);
      CAPTURE(i / 2);
      ThreadJob job(nodes);
      JobOptions options;
      options.shm_slot_bytes = 16384;
      options.leaves_alone = true;
      if (operation == one_of_pieces) {
        options.tuning.pairs_bytes = 0;
        options.tuning.wire_bytes = 4096;
        options.tuning.segment_bytes = 16384;
      }
      const auto errors = job.run(options, [&](Rank& rank) -> Result<void> {
        return work(rank, rank.map.rank == dying ? 5 : kForever, operation);
      });
      for (int rank = 0; rank < size; ++rank) {
        if (rank != dying) {
          require_lost_peer(errors[static_cast<std::size_t>(rank)], rank);
        }
      }
    }
  }
}

TEST_CASE("a notice ends a collective that waits for a rank that never comes, with the notice's words") {
  for (const Nodes& nodes : {Nodes{3}, Nodes{1, 2}, Nodes{1, 1, 1}}) {
    CAPTURE(text_of(nodes));
    ThreadJob job(nodes);
    std::atomic<int> waiting{0};
    const auto errors = job.run({}, [&](Rank& rank) -> Result<void> {
      std::vector<float> data(kCount, 1.0F);
      HVD_TRY(one_allreduce(rank, data));
      if (rank.map.rank != 1) {
        ++waiting;
        return one_allreduce(rank, data);
      }
      // Hangs, still connected: only the notice can tell.
      while (waiting.load() < 2) {
        std::this_thread::yield();
      }
      job.hub().notify_all("rank 1 on node1 was killed by signal 9 (SIGKILL)");
      const auto deadline = test_deadline();
      while (!deadline.has_passed()) {
        HVD_TRY(rank.interrupt.check());
        std::this_thread::yield();
      }
      return {};
    });
    // Rank 1 itself is told too.
    for (int rank = 0; rank < 3; ++rank) {
      require_lost_peer(errors[static_cast<std::size_t>(rank)], rank);
    }
    // Also who notices first that a connection ended, because rank 1 has left by then, tells the cause.
    for (const int rank : {0, 2}) {
      CHECK(errors[static_cast<std::size_t>(rank)]->message().find("signal 9") != std::string::npos);
    }
  }
}

TEST_CASE("a lost data link names the node and the rank at its other end") {
  ThreadJob job({1, 1});
  JobOptions options;
  options.leaves_alone = true;
  const auto errors = job.run(
      options, [&](Rank& rank) -> Result<void> { return rank.map.rank == 1 ? Result<void>() : work(rank, kForever); });
  require_lost_peer(errors[0], 0);
  const std::string& text = errors[0]->message();
  INFO(text);
  CHECK((text.find("node 1 (rank 1)") != std::string::npos || text.find("rank 1 is gone") != std::string::npos));
}

TEST_CASE("a rank that leaves after the last operation does not spoil it for a slower one") {
  JobOptions options;
  options.leaves_alone = true;
  for (int round = 0; round < 50; ++round) {
    ThreadJob job({3});
    const auto errors = job.run(options, [](Rank& rank) {
      NoInterrupt undisturbed;  // by connections that end: what the data plane itself makes of it is the point
      Rank alone{rank.map, rank.backend, undisturbed};
      return work(alone, 3);
    });
    for (const auto& error : errors) {
      INFO((error ? error->message() : "ok"));
      CHECK_FALSE(error.has_value());
    }
  }
}

}  // namespace hvd::failure_test
