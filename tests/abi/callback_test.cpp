// hvd_on_done: who is told, when, and what a callback may not do.
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "hvd/hvd.h"

namespace {

struct Told {
  int count = 0;
  hvd_status status = HVD_INTERNAL;
  bool has_text = false;
};

void note(void* arg, hvd_status status, const char* error) {
  auto& told = *static_cast<Told*>(arg);
  ++told.count;
  told.status = status;
  told.has_text = error != nullptr;
}

std::int64_t start(float* value) {
  static const std::int64_t shape[1] = {1};
  hvd_op op = HVD_OP_INIT;
  op.ndim = 1;
  op.shape = shape;
  op.name = "x";
  op.input = value;
  op.output = value;
  std::int64_t handle = 0;
  REQUIRE(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
  return handle;
}

}  // namespace

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
