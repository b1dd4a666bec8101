/* A whole job of one rank in C99 with nothing but hvd.h: what a caller in any language does. abi_test.cpp runs it. */
#include <stddef.h>
#include <string.h>

#include "hvd/hvd.h"

const char* hvd_c99_steps(void);

static const char* allreduce(void) {
  const int64_t shape[2] = {2, 3};
  const float input[6] = {1, 2, 3, 4, 5, 6};
  float output[6] = {0};
  int32_t done = 0;
  int64_t handle = 0;
  hvd_output result = HVD_OUTPUT_INIT;
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_ALLREDUCE;
  op.reduce_op = HVD_AVERAGE;
  op.ndim = 2;
  op.shape = shape;
  op.name = "c99";
  op.input = input;
  op.output = output;
  op.prescale = 2.0;
  op.postscale = 0.25;
  if (hvd_enqueue(NULL, &op, &handle) != HVD_OK || handle <= 0 || hvd_wait(NULL, handle) != HVD_OK) {
    return "allreduce fails";
  }
  if (hvd_poll(NULL, handle, &done) != HVD_OK || done != 1) {
    return "poll does not say done after wait";
  }
  if (output[0] != 0.5F || output[5] != 3.0F || input[5] != 6.0F) {
    return "allreduce does not scale";
  }
  if (hvd_result(NULL, handle, &result) != HVD_OK || result.data != output || result.size_bytes != 24 ||
      result.ndim != 2 || result.shape[0] != 2 || result.shape[1] != 3) {
    return "result of allreduce";
  }
  if (hvd_release(NULL, handle) != HVD_OK || hvd_wait(NULL, handle) != HVD_NOT_FOUND) {
    return "release does not forget the handle";
  }
  return NULL;
}

static const char* allgather(void) {
  const int64_t shape[1] = {3};
  const int16_t input[3] = {7, 8, 9};
  int64_t handle = 0;
  hvd_output result = HVD_OUTPUT_INIT;
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_ALLGATHER;
  op.dtype = HVD_INT16;
  op.ndim = 1;
  op.shape = shape;
  op.input = input;
  if (hvd_enqueue(NULL, &op, &handle) != HVD_OK || hvd_wait(NULL, handle) != HVD_OK ||
      hvd_result(NULL, handle, &result) != HVD_OK) {
    return "allgather fails";
  }
  if (result.data == NULL || result.data == input || result.size_bytes != 6 || result.shape[0] != 3 ||
      memcmp(result.data, input, 6) != 0) {
    return "result of allgather";
  }
  return hvd_release(NULL, handle) == HVD_OK ? NULL : "release of allgather";
}

static const char* broadcast_and_barrier(void) {
  const int64_t shape[1] = {2};
  double data[2] = {1.5, 2.5};
  int64_t handle = 0;
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_BROADCAST;
  op.dtype = HVD_FLOAT64;
  op.ndim = 1;
  op.shape = shape;
  op.input = data;
  op.output = data;
  if (hvd_enqueue(NULL, &op, &handle) != HVD_OK || hvd_release(NULL, handle) != HVD_OK || data[1] != 2.5) {
    return "broadcast fails";
  }
  op.kind = HVD_BARRIER;
  if (hvd_enqueue(NULL, &op, &handle) != HVD_OK || hvd_wait(NULL, handle) != HVD_OK) {
    return "barrier fails";
  }
  return hvd_release(NULL, handle) == HVD_OK ? NULL : "release of barrier";
}

/* NULL when all went well, else what did not. */
const char* hvd_c99_steps(void) {
  int round;
  const hvd_options options = HVD_OPTIONS_INIT;
  for (round = 0; round < 50; ++round) {
    const char* failed = NULL;
    if (hvd_is_initialized() != 0 || hvd_rank(NULL) != -1) {
      return "initialised before hvd_init";
    }
    if (hvd_init(&options) != HVD_OK || hvd_init(NULL) != HVD_OK || hvd_is_initialized() != 1) {
      return "hvd_init";
    }
    if (hvd_rank(NULL) != 0 || hvd_size(NULL) != 1 || hvd_local_rank(NULL) != 0 || hvd_local_size(NULL) != 1 ||
        hvd_cross_rank(NULL) != 0 || hvd_cross_size(NULL) != 1) {
      return "identity";
    }
    failed = allreduce();
    failed = failed != NULL ? failed : allgather();
    failed = failed != NULL ? failed : broadcast_and_barrier();
    if (failed != NULL) {
      return failed;
    }
    if (hvd_shutdown() != HVD_OK || hvd_shutdown() != HVD_OK) {
      return "hvd_shutdown";
    }
  }
  return NULL;
}
