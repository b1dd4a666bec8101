// Groups on N ranks through the C interface: all of a group or none of it.
#include <atomic>
#include <deque>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_group_test {
namespace {

// Allreduces of `counts` floats each, ready to be changed and then started as one.
struct Group {
  std::deque<FloatOp> members;
  std::vector<std::int64_t> handles;

  Group(const std::string& name, const std::vector<std::size_t>& counts, float value) {
    for (const std::size_t count : counts) {
      members.emplace_back(name + "." + std::to_string(members.size()), count, value);
    }
  }
  Outcome start(hvd_ctx* ctx) {
    std::vector<const hvd_op*> ops;
    for (const FloatOp& member : members) {
      ops.push_back(&member.op);
    }
    handles.assign(ops.size(), 0);
    return outcome(hvd_enqueue_group(ctx, ops.data(), static_cast<std::int32_t>(ops.size()), handles.data()));
  }
  [[nodiscard]] std::vector<Outcome> wait(hvd_ctx* ctx) const {
    std::vector<Outcome> outcomes;
    for (const std::int64_t handle : handles) {
      outcomes.push_back(outcome(hvd_wait(ctx, handle)));
    }
    return outcomes;
  }
};

std::vector<float> floats_of(hvd_ctx* ctx, std::int64_t handle) {
  hvd_output out = HVD_OUTPUT_INIT;
  if (hvd_wait(ctx, handle) != HVD_OK || hvd_result(ctx, handle, &out) != HVD_OK) {
    return {-1.0F};
  }
  const auto* data = static_cast<const float*>(out.data);
  return {data, data + out.shape[0]};
}

bool is_done(hvd_ctx* ctx, std::int64_t handle) {
  std::int32_t done = 0;
  return hvd_poll(ctx, handle, &done) == HVD_OK && done == 1;
}

}  // namespace

TEST_CASE("groups of any size give each tensor its own result, whatever the fusion threshold") {
  for (const Nodes& nodes : all_layouts()) {
    for (const std::size_t threshold : {std::size_t{0}, std::size_t{1000}, std::size_t{1} << 20U}) {
      CAPTURE(text_of(nodes));
      EngineOptions options;
      options.fusion_threshold_bytes = threshold;
      EngineJob job(nodes, options);
      const auto size = static_cast<float>(job.size());
      on_all(job.size(), [&](int rank) {
        Group first("first", {3, 0, 1000, 1}, 1.0F);
        Group second("second", {70'000, 7}, 2.0F);
        FloatOp alone("alone", 5, 3.0F);
        CHECK(first.start(job.at(rank)).status == HVD_OK);
        CHECK(alone.start(job.at(rank)).status == HVD_OK);
        CHECK(second.start(job.at(rank)).status == HVD_OK);
        CHECK(alone.wait(job.at(rank)).status == HVD_OK);
        for (const auto& [group, value] : {std::pair(&second, 2.0F), std::pair(&first, 1.0F)}) {
          for (const Outcome& got : group->wait(job.at(rank))) {
            CHECK(got.error == "");
          }
          for (const FloatOp& member : group->members) {
            CHECK(member.output == std::vector<float>(member.input.size(), value * size));
          }
        }
      });
    }
  }
}

TEST_CASE("a group may hold several types, and is averaged and scaled as one") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    Group group("g", {2, 2, 2}, static_cast<float>(rank));
    const std::vector<double> doubles(2, rank);
    std::vector<double> means(2);
    group.members[1].op.dtype = HVD_FLOAT64;
    group.members[1].op.input = doubles.data();
    group.members[1].op.output = means.data();
    for (FloatOp& member : group.members) {
      member.op.reduce_op = HVD_AVERAGE;
      member.op.postscale = 4.0;
    }
    CHECK(group.start(job.at(rank)).status == HVD_OK);
    for (const Outcome& got : group.wait(job.at(rank))) {
      CHECK(got.status == HVD_OK);
    }
    CHECK(group.members[2].output == std::vector<float>(2, 4.0F));
    CHECK(means == std::vector<double>(2, 4.0));
  });
}

TEST_CASE("nothing of a group is done before all ranks have asked for it") {
  EngineJob job({2});
  Group early("g", {2, 3}, 1.0F);
  REQUIRE(early.start(job.at(0)).status == HVD_OK);
  on_all(2, [&](int rank) {
    FloatOp other("other", 2, 1.0F);
    CHECK(other.run(job.at(rank)).status == HVD_OK);
  });
  CHECK_FALSE(is_done(job.at(0), early.handles[0]));
  CHECK_FALSE(is_done(job.at(0), early.handles[1]));
  Group late("g", {2, 3}, 1.0F);
  CHECK(late.start(job.at(1)).status == HVD_OK);
  CHECK(late.wait(job.at(1))[1].status == HVD_OK);
  CHECK(early.wait(job.at(0))[0].status == HVD_OK);
  CHECK(early.members[1].output == std::vector<float>(3, 2.0F));
}

TEST_CASE("a disagreement about one tensor of a group fails all of it on all ranks, and the job goes on") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    Group shapes("shapes", {2, rank == 2 ? 4U : 3U, 1}, 1.0F);
    CHECK(shapes.start(job.at(rank)).status == HVD_OK);
    for (const Outcome& got : shapes.wait(job.at(rank))) {
      CHECK(got.status == HVD_MISMATCH);
      CHECK(got.says("rank 0 sent a tensor of shape [3], but rank 2 sent a tensor of shape [4] (tensor 'shapes.1')"));
    }
    Group counts("counts", std::vector<std::size_t>(rank == 1 ? 2 : 3, 1), 1.0F);
    CHECK(counts.start(job.at(rank)).status == HVD_OK);
    for (const Outcome& got : counts.wait(job.at(rank))) {
      CHECK(got.status == HVD_MISMATCH);
      CHECK(got.says("rank 0 sent a group of 3, but rank 1 sent a group of 2"));
    }
    FloatOp after("after", 2, 1.0F);
    CHECK(after.run(job.at(rank)).status == HVD_OK);
    CHECK(after.output == std::vector<float>(2, 3.0F));
  });
}

TEST_CASE("a name in use refuses a whole group, whose other names stay free") {
  EngineJob job({2});
  FloatOp pending("g.1", 2, 1.0F);
  REQUIRE(pending.start(job.at(0)).status == HVD_OK);
  Group refused("g", {1, 1, 1}, 1.0F);
  CHECK(refused.start(job.at(0)).says("currently being processed: 'g.1'"));
  FloatOp other("g.1", 2, 1.0F);
  REQUIRE(other.run(job.at(1)).status == HVD_OK);
  CHECK(pending.wait(job.at(0)).status == HVD_OK);
  on_all(2, [&](int rank) {
    Group again("g", {1, 1, 1}, 1.0F);
    CHECK(again.start(job.at(rank)).status == HVD_OK);
    CHECK(again.wait(job.at(rank))[2].status == HVD_OK);
  });
}

TEST_CASE("groups of allgathers bring every rank's rows of every tensor, uneven and empty ones too") {
  for (const Nodes& nodes : all_layouts()) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      const auto rows = [](int r, std::size_t tensor) {
        return static_cast<std::size_t>(r) * tensor * 100 + tensor / 2;
      };
      Group group("g", {rows(rank, 0), rows(rank, 1), rows(rank, 2), rows(rank, 3)}, static_cast<float>(rank));
      for (FloatOp& member : group.members) {
        member.op.kind = HVD_ALLGATHER;
        member.op.output = nullptr;
      }
      REQUIRE(group.start(job.at(rank)).status == HVD_OK);
      for (std::size_t tensor = 0; tensor < 4; ++tensor) {
        std::vector<float> expected;
        for (int r = 0; r < job.size(); ++r) {
          expected.insert(expected.end(), rows(r, tensor), static_cast<float>(r));
        }
        CHECK(floats_of(job.at(rank), group.handles[tensor]) == expected);
      }
    });
  }
}

TEST_CASE("allgathers that are pending together travel together and stay apart") {
  EngineJob job({2, 2});
  on_all(4, [&](int rank) {
    std::deque<FloatOp> ops;
    for (std::size_t i = 0; i < 50; ++i) {
      ops.emplace_back("t" + std::to_string(i), i, static_cast<float>(rank) + static_cast<float>(i) * 10.0F);
      ops.back().op.kind = HVD_ALLGATHER;
      ops.back().op.output = nullptr;
      CHECK(ops.back().start(job.at(rank)).status == HVD_OK);
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      std::vector<float> expected;
      for (int r = 0; r < 4; ++r) {
        expected.insert(expected.end(), i, static_cast<float>(r) + static_cast<float>(i) * 10.0F);
      }
      CHECK(floats_of(job.at(rank), ops[i].handle) == expected);
    }
  });
}

TEST_CASE("a rank that is lost leaves no part of a group pending") {
  EngineJob job({2, 1});
  const std::string cause = "rank 2 was killed by signal 9 (SIGKILL)";
  on_all(3, [&](int rank) {
    if (rank == 2) {
      job.hub().notify_all(cause);
      return;
    }
    Group group("g", {10, 20}, 1.0F);
    const Outcome started = group.start(job.at(rank));
    if (started.status == HVD_OK) {
      for (const Outcome& got : group.wait(job.at(rank))) {
        CHECK(got.error == cause);
      }
    } else {
      CHECK(started.error == cause);
    }
  });
}

}  // namespace hvd::test::engine_group_test
