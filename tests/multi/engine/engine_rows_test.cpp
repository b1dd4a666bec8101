// Operations that cut tensors by rank along dimension 0, on N ranks through the C interface.
#include <cmath>
#include <cstring>
#include <deque>

#include <doctest/doctest.h>

#include "runtime/algo/row_layout.h"
#include "tests/multi/engine/engine_job.h"

namespace hvd::test {
namespace {

// What an operation left of type T; its shape beside it.
template <typename T>
struct Left {
  Outcome outcome;
  std::vector<std::int64_t> shape;
  std::vector<T> data;
};

template <typename T>
Left<T> wait_for(hvd_ctx* ctx, std::int64_t handle) {
  Left<T> left;
  left.outcome = outcome(hvd_wait(ctx, handle));
  hvd_output out{sizeof(hvd_output), 1, nullptr, 0, 0, 0, {}};
  if (left.outcome.status == HVD_OK && hvd_result(ctx, handle, &out) == HVD_OK) {
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
    return started.status == HVD_OK ? wait_for<T>(ctx, handle) : Left<T>{started, {}, {}};
  }
};

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
    CHECK(refused.outcome.status == HVD_INVALID);
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

}  // namespace hvd::test
