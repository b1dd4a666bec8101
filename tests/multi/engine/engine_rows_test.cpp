// Operations that cut tensors by rank along dimension 0, on N ranks through the C interface.
#include <cmath>
#include <cstring>
#include <deque>

#include <doctest/doctest.h>

#include "runtime/algo/row_layout.h"
#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_rows_test {
namespace {

// What an operation left of type T; its shape beside it.
template <typename T>
struct Left {
  Outcome outcome;
  std::vector<std::int64_t> shape;
  std::vector<T> data;
  std::vector<std::int32_t> received_splits;
};

template <typename T>
Left<T> wait_for(hvd_ctx* ctx, std::int64_t handle) {
  Left<T> left;
  left.outcome = outcome(hvd_wait(ctx, handle));
  hvd_output out = HVD_OUTPUT_INIT;
  if (left.outcome.status == HVD_OK && hvd_result(ctx, handle, &out) == HVD_OK) {
    left.received_splits.assign(out.received_splits, out.received_splits + out.received_count);
    left.shape.assign(out.shape, out.shape + out.ndim);
    const auto* data = static_cast<const T*>(out.data);
    left.data.assign(data, data + out.size_bytes / static_cast<std::int64_t>(sizeof(T)));
  }
  return left;
}

// One operation on a tensor of `rows` x `columns` of type T, with values of this rank's own.
template <typename T>
struct RowsOp {
  std::vector<std::int64_t> shape;
  std::vector<T> input;
  std::string name;
  hvd_op op = HVD_OP_INIT;
  std::int64_t handle = 0;

  RowsOp(std::int32_t kind, std::int32_t dtype, std::string tensor, int rank, std::int64_t rows, std::int64_t columns)
      : shape{rows, columns}, name(std::move(tensor)) {
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      input.push_back(value_at(rank, i));
    }
    op.kind = kind;
    op.dtype = dtype;
    op.ndim = 2;
    op.shape = shape.data();
    op.name = name.c_str();
    op.input = input.data();
  }
  RowsOp(const RowsOp&) = delete;
  RowsOp& operator=(const RowsOp&) = delete;

  static T value_at(int rank, std::int64_t i) { return static_cast<T>((rank + 1) * (i % 7 + 1)); }

  Outcome start(hvd_ctx* ctx) { return outcome(hvd_enqueue(ctx, &op, &handle)); }
  Left<T> run(hvd_ctx* ctx) {
    const Outcome started = start(ctx);
    return started.status == HVD_OK ? wait_for<T>(ctx, handle) : Left<T>{started, {}, {}, {}};
  }
};

// Every type that travels, with its size.
constexpr std::pair<std::int32_t, std::size_t> kTypes[] = {
    {HVD_UINT8, 1},   {HVD_INT8, 1},     {HVD_UINT16, 2},  {HVD_INT16, 2},   {HVD_INT32, 4}, {HVD_INT64, 8},
    {HVD_FLOAT16, 2}, {HVD_BFLOAT16, 2}, {HVD_FLOAT32, 4}, {HVD_FLOAT64, 8}, {HVD_BOOL, 1}};

// How many rows of `base` rank `from` has for rank `to`.
std::int32_t split_of(std::int32_t base, int from, int to) {
  return base * ((3 * from + 2 * to) % 4);
}

// An alltoall of `columns` elements of `element` bytes a row on this rank; whether all that it left is right.
void check_alltoall(hvd_ctx* ctx, std::pair<std::int32_t, std::size_t> type, std::int32_t base, std::int64_t columns) {
  const int rank = hvd_rank(ctx);
  const int size = hvd_size(ctx);
  const auto row_bytes = static_cast<std::size_t>(columns) * type.second;
  const auto fill = [&](std::vector<std::uint8_t>& bytes, int from, int to) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(split_of(base, from, to)) * row_bytes; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(from * 31 + to * 3)));
    }
  };
  std::vector<std::int32_t> splits;
  std::vector<std::int32_t> received;
  std::vector<std::uint8_t> input;
  std::vector<std::uint8_t> expected;
  std::int64_t rows = 2;  // that go nowhere
  std::int64_t rows_here = 0;
  for (int other = 0; other < size; ++other) {
    splits.push_back(split_of(base, rank, other));
    received.push_back(split_of(base, other, rank));
    fill(input, rank, other);
    fill(expected, other, rank);
    rows += splits.back();
    rows_here += received.back();
  }
  input.resize(input.size() + 2 * row_bytes);
  RowsOp<std::uint8_t> op(HVD_ALLTOALL, type.first, "a", rank, 0, columns);
  op.shape[0] = rows;
  op.op.input = input.data();
  op.op.splits = splits.data();
  op.op.split_count = size;
  const auto left = op.run(ctx);
  CHECK(left.outcome.error == "");
  CHECK(left.data == expected);
  CHECK(left.shape == std::vector<std::int64_t>{rows_here, columns});
  CHECK(left.received_splits == received);
}

// What a rank gets of the sum of RowsOps with these rows and columns, times `factor`.
template <typename T>
std::vector<T> share_of_sum(int rank, int size, std::int64_t rows, std::int64_t columns, double factor) {
  const auto shares = even_rows(rows, size);
  std::int64_t first = 0;
  for (int r = 0; r < rank; ++r) {
    first += shares[static_cast<std::size_t>(r)] * columns;
  }
  std::vector<T> expected;
  for (std::int64_t i = 0; i < shares[static_cast<std::size_t>(rank)] * columns; ++i) {
    const double sum = static_cast<double>((first + i) % 7 + 1) * size * (size + 1) / 2;
    expected.push_back(static_cast<T>(std::is_integral_v<T> ? std::trunc(sum * factor) : sum * factor));
  }
  return expected;
}

}  // namespace

TEST_CASE("a reducescatter gives each rank its rows of the reduction, the lowest ranks one more") {
  for (const Nodes& nodes : all_layouts()) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    const int size = job.size();
    on_all(size, [&](int rank) {
      for (const std::int64_t rows : {0, 1, 2, 7, 1024, 100'003}) {
        RowsOp<float> floats(HVD_REDUCESCATTER, HVD_FLOAT32, "f", rank, rows, 2);
        const auto sum = floats.run(job.at(rank));
        CHECK(sum.outcome.error == "");
        CHECK(sum.data == share_of_sum<float>(rank, size, rows, 2, 1.0));
        CHECK(sum.shape == std::vector<std::int64_t>{even_rows(rows, size)[static_cast<std::size_t>(rank)], 2});
        RowsOp<std::int32_t> integers(HVD_REDUCESCATTER, HVD_INT32, "i", rank, rows, 1);
        integers.op.reduce_op = HVD_AVERAGE;
        CHECK(integers.run(job.at(rank)).data == share_of_sum<std::int32_t>(rank, size, rows, 1, 1.0 / size));
      }
    });
  }
}

TEST_CASE("a reducescatter scales before and after, and leaves its input alone") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    RowsOp<double> op(HVD_REDUCESCATTER, HVD_FLOAT64, "x", rank, 5, 3);
    op.op.prescale = 2.0;
    op.op.postscale = 0.25;
    const std::vector<double> before = op.input;
    CHECK(op.run(job.at(rank)).data == share_of_sum<double>(rank, 3, 5, 3, 0.5));
    CHECK(op.input == before);
  });
}

TEST_CASE("reducescatters that are pending together, and groups of them, stay apart") {
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 20U}) {
    EngineOptions options;
    options.fusion_threshold_bytes = threshold;
    EngineJob job({2, 2}, options);
    on_all(4, [&](int rank) {
      std::deque<RowsOp<float>> ops;
      for (std::int64_t i = 0; i < 40; ++i) {
        ops.emplace_back(HVD_REDUCESCATTER, HVD_FLOAT32, "t" + std::to_string(i), rank, i % 11, i % 3 + 1);
        ops.back().op.postscale = i < 20 ? 1.0 : 3.0;
        if (i < 30) {
          CHECK(ops.back().start(job.at(rank)).status == HVD_OK);
        }
      }
      std::vector<const hvd_op*> group;
      std::vector<std::int64_t> handles(10);
      for (std::size_t i = 30; i < 40; ++i) {
        group.push_back(&ops[i].op);
      }
      CHECK(hvd_enqueue_group(job.at(rank), group.data(), 10, handles.data()) == HVD_OK);
      for (std::size_t i = 0; i < 40; ++i) {
        const auto left = wait_for<float>(job.at(rank), i < 30 ? ops[i].handle : handles[i - 30]);
        CHECK(left.outcome.error == "");
        CHECK(left.data == share_of_sum<float>(rank, 4, ops[i].shape[0], ops[i].shape[1], i < 20 ? 1.0 : 3.0));
      }
    });
  }
}

TEST_CASE("a reducescatter of a scalar is an error on all ranks, and so are ranks that disagree") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    RowsOp<float> scalar(HVD_REDUCESCATTER, HVD_FLOAT32, "s", rank, 1, 1);
    scalar.op.ndim = 0;
    const auto refused = scalar.run(job.at(rank));
    CHECK(refused.outcome.status == HVD_MISMATCH);
    CHECK(refused.outcome.says("REDUCESCATTER of a scalar"));
    RowsOp<float> rows(HVD_REDUCESCATTER, HVD_FLOAT32, "r", rank, 4 + rank, 1);
    CHECK(rows.run(job.at(rank)).outcome.error ==
          "Mismatched REDUCESCATTER tensor shapes: rank 0 sent a tensor of shape [4, 1], but rank 1 sent a tensor of "
          "shape [5, 1] (tensor 'r')");
    RowsOp<float> ops(HVD_REDUCESCATTER, HVD_FLOAT32, "o", rank, 4, 1);
    ops.op.reduce_op = rank == 0 ? HVD_SUM : HVD_MAX;
    CHECK(ops.run(job.at(rank)).outcome.says("rank 0 sent reduction op SUM, but rank 1 sent reduction op MAX"));
  });
}

TEST_CASE("an alltoall brings the rows that ranks have for each other, of every type, and says how many") {
  for (const Nodes& nodes : all_layouts()) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      for (const auto& type : kTypes) {
        for (const std::int32_t base : {0, 1, 7, 1024}) {
          check_alltoall(job.at(rank), type, base, 3);
        }
      }
      check_alltoall(job.at(rank), {HVD_FLOAT32, 4}, 100'003, 1);
    });
  }
}

TEST_CASE("an alltoall without splits shares rows evenly, each rank its own number of them") {
  EngineJob job({2, 1});
  on_all(3, [&](int rank) {
    RowsOp<std::int64_t> op(HVD_ALLTOALL, HVD_INT64, "x", rank, 3 * rank, 1);
    for (std::size_t i = 0; i < op.input.size(); ++i) {
      op.input[i] = rank * 100 + static_cast<std::int64_t>(i) / rank;
    }
    const auto left = op.run(job.at(rank));
    CHECK(left.data == std::vector<std::int64_t>{100 + rank, 200 + rank, 200 + rank});
    CHECK(left.received_splits == std::vector<std::int32_t>{0, 1, 2});
    RowsOp<std::int64_t> uneven(HVD_ALLTOALL, HVD_INT64, "y", rank, 4, 1);
    const auto refused = uneven.run(job.at(rank));
    CHECK(refused.outcome.status == HVD_INVALID);
    CHECK(refused.outcome.says("shape[0] is 4, which 3 ranks cannot share evenly; give splits"));
  });
}

TEST_CASE("alltoalls on which ranks disagree, or of scalars, are errors on all ranks") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    RowsOp<float> scalar(HVD_ALLTOALL, HVD_FLOAT32, "s", rank, 2, 1);
    scalar.op.ndim = 0;
    CHECK(scalar.run(job.at(rank)).outcome.says("ALLTOALL of a scalar"));
    RowsOp<float> columns(HVD_ALLTOALL, HVD_FLOAT32, "c", rank, 2, 1 + rank);
    CHECK(columns.run(job.at(rank)).outcome.error ==
          "Mismatched ALLTOALL tensor shapes: rank 0 sent a tensor of shape [2, 1], but rank 1 sent a tensor of shape "
          "[2, 2] (tensor 'c'); only their first dimension may differ");
  });
}

TEST_CASE("a rank that is lost inside any operation does not leave the others in it") {
  const std::string cause = "rank 2 was killed by signal 9 (SIGKILL)";
  for (const std::int32_t kind : {HVD_ALLGATHER, HVD_REDUCESCATTER, HVD_ALLTOALL}) {
    for (const Nodes& nodes : {Nodes{3}, Nodes{2, 1}, Nodes{1, 2}}) {
      CAPTURE(kind);
      EngineJob job(nodes);
      on_all(3, [&](int rank) {
        for (int i = 0;; ++i) {
          RowsOp<float> op(kind, HVD_FLOAT32, "t" + std::to_string(i), rank, 60'000, 1);
          const Outcome got = op.run(job.at(rank)).outcome;
          if (got.status != HVD_OK) {
            CHECK(got.status == HVD_LOST_PEER);
            CHECK(got.error == cause);
            break;
          }
          if (rank == 2 && i == 5) {
            job.hub().notify_all(cause);
          }
        }
      });
    }
  }
}

}  // namespace hvd::test::engine_rows_test
