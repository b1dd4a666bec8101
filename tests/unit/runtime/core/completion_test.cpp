#include "runtime/core/completion.h"

#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/core/shape.h"

namespace hvd::completion_test {

TEST_CASE("a completion tells all who wait, and those who come later") {
  Completion completion;
  CHECK_FALSE(completion.is_done());
  std::atomic<int> seen = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      if (completion.wait().error().message() == "why") {
        ++seen;
      }
    });
  }
  completion.finish(Error(Code::kLostPeer, "why"));
  for (auto& waiter : waiters) {
    waiter.join();
  }
  CHECK(seen == 4);
  CHECK(completion.is_done());
  CHECK(completion.wait().error().code() == Code::kLostPeer);
  CHECK_FALSE(completion.output().has_value());
}

TEST_CASE("a listener is told once, before anybody's wait returns, also when it comes late") {
  Completion completion;
  std::atomic<bool> is_told = false;
  REQUIRE(completion
              .tell([&](const Result<void>& outcome) {
                CHECK(outcome.error().message() == "why");
                CHECK_FALSE(completion.is_done());
                is_told = true;
              })
              .ok());
  CHECK(completion.tell([](const Result<void>&) {}).error().code() == Code::kInvalid);
  std::thread waiter([&] {
    static_cast<void>(completion.wait());
    CHECK(is_told);
  });
  completion.finish(Error(Code::kLostPeer, "why"));
  waiter.join();
  CHECK(is_told);

  Completion over;
  over.finish(Result<void>());
  bool is_told_here = false;
  REQUIRE(over.tell([&](const Result<void>& outcome) { is_told_here = outcome.ok(); }).ok());
  CHECK(is_told_here);
}

TEST_CASE("a listener that comes while the operation ends is told once") {
  for (int round = 0; round < 300; ++round) {
    Completion completion;
    std::atomic<int> count = 0;
    std::thread finisher([&] { completion.finish(Result<void>()); });
    CHECK(completion.tell([&](const Result<void>&) { ++count; }).ok());
    static_cast<void>(completion.wait());
    finisher.join();
    CHECK(count == 1);
  }
}

TEST_CASE("a completion hands over the memory that was allocated") {
  auto output = OwnedOutput::allocate(8, {2});
  REQUIRE(output.ok());
  output.value().data[7] = std::byte{5};
  Completion completion;
  completion.finish(std::move(output).value());
  CHECK(completion.wait().ok());
  REQUIRE(completion.output().has_value());
  CHECK(completion.output()->data[7] == std::byte{5});
  CHECK(completion.output()->shape == std::vector<std::int64_t>{2});
}

TEST_CASE("an empty output has an address, and the sizes of shapes never overflow") {
  CHECK(OwnedOutput::allocate(0, {0}).value().data != nullptr);
  const auto bytes = [](std::vector<std::int64_t> shape) { return size_bytes_of(shape, Dtype::kFloat64); };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK(bytes({}) == 8);
  CHECK(bytes({2, 3}) == 48);
  CHECK(bytes({5, 0}) == 0);
  CHECK_FALSE(bytes({0, kHuge}).has_value());
  CHECK_FALSE(bytes({kHuge}).has_value());
  CHECK_FALSE(bytes({1 << 20, 1 << 20, 1 << 20}).has_value());
  CHECK_FALSE(bytes({-1}).has_value());
  CHECK(shape_text(std::vector<std::int64_t>{2, 3}) == "[2, 3]");
  CHECK(shape_text(std::vector<std::int64_t>{}) == "[]");
}

}  // namespace hvd::completion_test
