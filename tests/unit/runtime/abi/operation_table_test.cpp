#include "runtime/abi/operation_table.h"

#include <array>
#include <memory>
#include <string>

#include <doctest/doctest.h>

namespace hvd::operation_table_test {

TEST_CASE("a handle names one operation until it is forgotten, and is never another one's") {
  OperationTable table;
  OperationTable of_next_job;
  const auto first = table.make();
  const std::int64_t handle = table.keep(first);
  CHECK(table.find(handle).value() == first);
  CHECK(of_next_job.find(handle).error().code() == Code::kNotFound);
  table.forget(handle);
  CHECK(table.find(handle).error().message().find("handle " + std::to_string(handle)) != std::string::npos);
  table.forget(handle);  // nothing is left to be done
  CHECK(of_next_job.keep(table.make()) > handle);
}

TEST_CASE("who has found an operation keeps it when another thread forgets its handle") {
  OperationTable table;
  const std::int64_t handle = table.keep(table.make());
  const auto found = table.find(handle).value();
  const std::weak_ptr<const Operation> watched = found;
  table.forget(handle);
  CHECK(!watched.expired());
}

TEST_CASE("an operation that was done at once has ended well, in the caller's memory") {
  OperationTable table;
  float output = 0;
  const std::array<std::int64_t, 2> shape = {1, 1};
  QuickOp op;
  op.output = &output;
  op.size_bytes = sizeof output;
  op.shape = shape;
  const auto done = table.make_done(op);
  CHECK(done->completion->is_done());
  CHECK(done->completion->wait().ok());
  CHECK(done->output == &output);
  CHECK(done->size_bytes == 4);
  CHECK(done->shape().size() == 2);
}

}  // namespace hvd::operation_table_test
