// hvd_on_done: who is told, when, and what a callback may not do.
#include <cstdint>
#include <limits>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "hvd/hvd.h"
#include "tests/abi/told.h"

namespace hvd::test::callback_test {

TEST_CASE("a callback has been called once when hvd_wait returns, and at once for what is over") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  float value = 1;
  for (int round = 0; round < 100; ++round) {
    Told told;
    const std::int64_t handle = start(&value);
    CHECK(hvd_on_done(nullptr, handle, note, &told) == HVD_OK);
    CHECK(hvd_wait(nullptr, handle) == HVD_OK);
    CHECK(told.count == 1);
    CHECK(told.status == HVD_OK);
    CHECK_FALSE(told.has_text);
    CHECK(hvd_on_done(nullptr, handle, note, &told) == HVD_INVALID);
    CHECK(told.count == 1);
    CHECK(hvd_release(nullptr, handle) == HVD_OK);
    CHECK(hvd_on_done(nullptr, handle, note, &told) == HVD_NOT_FOUND);
  }
  Told late;
  const std::int64_t handle = start(&value);
  CHECK(hvd_wait(nullptr, handle) == HVD_OK);
  CHECK(hvd_on_done(nullptr, handle, note, &late) == HVD_OK);
  CHECK(late.count == 1);
  CHECK(hvd_on_done(nullptr, handle, nullptr, nullptr) == HVD_INVALID);
  CHECK(hvd_shutdown() == HVD_OK);
}

namespace {

struct Caller {
  std::int64_t handle = 0;
  bool is_refused = false;
  std::string text;
};

void call_back(void* arg, hvd_status /*status*/, const char* /*error*/) {
  auto& caller = *static_cast<Caller*>(arg);
  hvd_output out = HVD_OUTPUT_INIT;
  caller.is_refused = hvd_wait(nullptr, caller.handle) == HVD_INVALID &&
                      hvd_result(nullptr, caller.handle, &out) == HVD_INVALID &&
                      hvd_release(nullptr, caller.handle) == HVD_INVALID && hvd_shutdown() == HVD_INVALID &&
                      hvd_init(nullptr) == HVD_INVALID && hvd_rank(nullptr) == -1 && hvd_is_initialized() == 0;
  caller.text = hvd_last_error();
}

}  // namespace

TEST_CASE("a callback may not call the library, and the thread that it came on may again afterwards") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  float value = 1;
  Caller caller;
  caller.handle = start(&value);
  CHECK(hvd_wait(nullptr, caller.handle) == HVD_OK);
  CHECK(hvd_on_done(nullptr, caller.handle, call_back, &caller) == HVD_OK);  // on this thread
  CHECK(caller.is_refused);
  CHECK(caller.text.find("callback") != std::string::npos);
  CHECK(hvd_rank(nullptr) == 0);
  CHECK(hvd_release(nullptr, caller.handle) == HVD_OK);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("a queue gives out each operation that has ended, once, and ends a wait that nobody answers") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  hvd_queue* queue = nullptr;
  REQUIRE(hvd_queue_create(&queue) == HVD_OK);
  std::int64_t handle = -1;
  CHECK(hvd_queue_next(queue, 0.0, &handle) == HVD_TIMEOUT);
  CHECK(hvd_queue_next(queue, -1.0, &handle) == HVD_INVALID);
  CHECK(hvd_queue_next(queue, std::numeric_limits<double>::quiet_NaN(), &handle) == HVD_INVALID);
  constexpr int kCount = 100;
  constexpr double kLong = 600.0;
  std::int64_t sum_out = 0;
  std::thread server([&] {
    for (int i = 0; i < kCount; ++i) {
      std::int64_t done = 0;
      REQUIRE(hvd_queue_next(queue, kLong, &done) == HVD_OK);
      CHECK(hvd_wait(nullptr, done) == HVD_OK);
      CHECK(hvd_release(nullptr, done) == HVD_OK);
      sum_out += done;
    }
  });
  float value = 1;
  std::int64_t sum_in = 0;
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t started = start(&value);
    if (i % 2 == 0) {
      CHECK(hvd_wait(nullptr, started) == HVD_OK);  // has ended already when it is put
    }
    sum_in += started;
    CHECK(hvd_queue_put(queue, nullptr, started) == HVD_OK);
    if (i % 2 != 0) {
      hvd_wait(nullptr, started);  // its name comes again
    }
  }
  server.join();
  CHECK(sum_in == sum_out);
  CHECK(hvd_queue_put(queue, nullptr, 0) == HVD_OK);
  CHECK(hvd_queue_next(queue, kLong, &handle) == HVD_OK);
  CHECK(handle == 0);
  CHECK(hvd_queue_put(queue, nullptr, std::numeric_limits<std::int64_t>::max()) == HVD_NOT_FOUND);
  CHECK(hvd_queue_create(nullptr) == HVD_INVALID);
  CHECK(hvd_queue_put(nullptr, nullptr, 0) == HVD_INVALID);
  CHECK(hvd_queue_next(queue, 0.0, nullptr) == HVD_INVALID);
  hvd_queue_destroy(queue);
  CHECK(hvd_shutdown() == HVD_OK);
}

}  // namespace hvd::test::callback_test
