// One operation, and who is told of its end.
#pragma once

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "hvd/hvd.h"

namespace hvd::test {

// Told counts what the callback note() was called with, so that tests can compare it.
struct Told {
  int count = 0;
  hvd_status status = HVD_INTERNAL;
  bool has_text = false;
};

inline void note(void* arg, hvd_status status, const char* error) {
  auto& told = *static_cast<Told*>(arg);
  ++told.count;
  told.status = status;
  told.has_text = error != nullptr;
}

// Enqueues an allreduce of one value in place, and returns its handle.
inline std::int64_t start(float* value, const std::string& name = "x") {
  static const std::int64_t shape[1] = {1};
  hvd_op op = HVD_OP_INIT;
  op.ndim = 1;
  op.shape = shape;
  op.name = name.c_str();
  op.input = value;
  op.output = value;
  std::int64_t handle = 0;
  REQUIRE(hvd_enqueue(nullptr, &op, &handle) == HVD_OK);
  return handle;
}

}  // namespace hvd::test
