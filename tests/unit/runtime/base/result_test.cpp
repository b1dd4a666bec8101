#include "runtime/base/result.h"

#include <errno.h>

#include <memory>

#include <doctest/doctest.h>

namespace hvd::result_test {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) {
    return Error(Code::kInvalid, std::to_string(value) + " is odd");
  }
  return value / 2;
}

Result<int> quarter_of(int value) {
  HVD_TRY_ASSIGN(const int half, half_of(value));
  HVD_TRY_ASSIGN(const int quarter, half_of(half));
  return quarter;
}

Result<void> check_even(int value) {
  HVD_TRY(half_of(value));
  return {};
}

}  // namespace

TEST_CASE("a result is its value or its error, and the macros pass the error on") {
  CHECK(quarter_of(12).value() == 3);
  CHECK(quarter_of(10).error().message() == "5 is odd");
  CHECK(check_even(2).ok());
  CHECK(check_even(3).error().code() == Code::kInvalid);
}

TEST_CASE("a result holds what can only be moved") {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(result).value();
  CHECK(*taken == 7);
}

TEST_CASE("context is put before the message and keeps code and errno") {
  const Error error = Error::from_errno("open of a file", ENOENT).with_context("reading the job");
  CHECK(error.message() == "reading the job: open of a file: No such file or directory");
  CHECK(error.code() == Code::kNotFound);
  CHECK(error.sys_errno() == ENOENT);
}

TEST_CASE("what the system says becomes the code that a caller acts on") {
  CHECK(Error::from_errno("x", ECONNREFUSED).code() == Code::kUnreachable);
  CHECK(Error::from_errno("x", ETIMEDOUT).code() == Code::kTimeout);
  CHECK(Error::from_errno("x", ECONNRESET).code() == Code::kLostPeer);
  CHECK(Error::from_errno("x", EPIPE).code() == Code::kLostPeer);
  CHECK(Error::from_errno("x", EMFILE).code() == Code::kResource);
  CHECK(Error::from_errno("x", EPERM).code() == Code::kSystem);
}

}  // namespace hvd::result_test
