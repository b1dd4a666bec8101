// hvd_wait_some and hvd_on_all_done: several operations together.
#include <array>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "hvd/hvd.h"
#include "tests/abi/told.h"

namespace hvd::test::several_test {
namespace {

bool says(const char* text) {
  return std::string(hvd_last_error()).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("one callback for several operations comes once, when all have ended") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  std::array<float, 3> values{1, 2, 3};
  for (int round = 0; round < 100; ++round) {
    Told told;
    std::array<std::int64_t, 3> handles{};
    for (std::size_t i = 0; i < handles.size(); ++i) {
      handles[i] = start(&values[i], "several." + std::to_string(i));
    }
    CHECK(hvd_on_all_done(nullptr, handles.data(), 3, note, &told) == HVD_OK);
    for (const std::int64_t handle : handles) {
      CHECK(hvd_wait(nullptr, handle) == HVD_OK);
    }
    CHECK(told.count == 1);
    CHECK(told.status == HVD_OK);
    CHECK_FALSE(told.has_text);
    std::int32_t done = 0;
    CHECK(hvd_wait_some(nullptr, handles.data(), 3, 0, &done) == HVD_OK);
    CHECK(done == 1);
    CHECK(hvd_finish(nullptr, handles.data(), 3) == HVD_OK);
    CHECK(told.count == 1);
  }
  Told none;
  CHECK(hvd_on_all_done(nullptr, nullptr, 0, note, &none) == HVD_OK);
  CHECK(none.count == 1);
  CHECK(hvd_shutdown() == HVD_OK);
}

TEST_CASE("what is wrong with several operations is refused, and then nobody is called") {
  REQUIRE(hvd_init(nullptr) == HVD_OK);
  float value = 1;
  Told told;
  std::int32_t done = 0;
  std::array<std::int64_t, 2> handles{start(&value, "a"), 0};
  CHECK(hvd_on_all_done(nullptr, handles.data(), 2, note, &told) == HVD_NOT_FOUND);
  CHECK(hvd_on_all_done(nullptr, handles.data(), 1, nullptr, &told) == HVD_INVALID);
  CHECK(hvd_on_all_done(nullptr, handles.data(), -1, note, &told) == HVD_INVALID);
  CHECK(hvd_on_all_done(nullptr, nullptr, 1, note, &told) == HVD_INVALID);
  handles[1] = handles[0];
  CHECK(hvd_on_all_done(nullptr, handles.data(), 2, note, &told) == HVD_INVALID);
  CHECK(hvd_on_all_done(nullptr, handles.data(), 1, note, &told) == HVD_INVALID);  // it has a callback by now
  CHECK(says("callback"));
  CHECK(hvd_wait_some(nullptr, handles.data(), 1, -1, &done) == HVD_INVALID);
  CHECK(hvd_wait_some(nullptr, handles.data(), 1, 0, nullptr) == HVD_INVALID);
  CHECK(hvd_wait_some(nullptr, handles.data(), -1, 0, &done) == HVD_INVALID);
  CHECK(hvd_wait(nullptr, handles[0]) == HVD_OK);
  CHECK(told.count == 0);
  CHECK(hvd_release(nullptr, handles[0]) == HVD_OK);
  CHECK(hvd_wait_some(nullptr, handles.data(), 1, 0, &done) == HVD_NOT_FOUND);
  CHECK(hvd_shutdown() == HVD_OK);
  CHECK(hvd_wait_some(nullptr, handles.data(), 1, 0, &done) == HVD_NOT_INITIALIZED);
}

}  // namespace hvd::test::several_test
