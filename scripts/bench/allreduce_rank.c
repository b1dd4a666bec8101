/* This is one rank of scripts/bench/run. It times allreduce of float32, in place, over a list of sizes. Rank 0 prints
 * JSON: {"bytes": median seconds of one call, ...}. With -DWITH_MPI it is built against MPI, else against libhvd.
 *
 * Usage: allreduce_rank SECONDS BYTES...      SECONDS is about how long each size is measured */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef WITH_MPI
#include <mpi.h>
static void fail_unless(int ok) {
  if (!ok)
    MPI_Abort(MPI_COMM_WORLD, 1);
}
static int join(int* argc, char*** argv) {
  int rank;
  fail_unless(MPI_Init(argc, argv) == MPI_SUCCESS && MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
  return rank;
}
static void allreduce(float* data, int64_t count, const char* name) {
  (void)name;
  fail_unless(MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
}
static void leave(void) {
  MPI_Finalize();
}
#else
#include "hvd/hvd.h"
static void fail_unless(int ok) {
  if (!ok) {
    fprintf(stderr, "%s\n", hvd_last_error());
    exit(1);
  }
}
static int join(int* argc, char*** argv) {
  (void)argc, (void)argv;
  fail_unless(hvd_init(NULL) == HVD_OK);
  return hvd_rank(NULL);
}
static void allreduce(float* data, int64_t count, const char* name) {
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_ALLREDUCE;
  op.ndim = 1;
  op.shape = &count;
  op.name = name;
  op.input = data;
  op.output = data;
  fail_unless(hvd_execute(NULL, &op, NULL) == HVD_OK);
}
static void leave(void) {
  hvd_shutdown();
}
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

/* Calls are timed in batches: a clock reading costs as much as the smallest allreduce. */
static double median_seconds(float* data, int64_t count, const char* name, int batches, int calls) {
  double* times = malloc((size_t)batches * sizeof *times);
  for (int b = -2; b < batches; ++b) { /* the first two warm up */
    const double begin = now();
    for (int c = 0; c < calls; ++c)
      allreduce(data, count, name);
    if (b >= 0)
      times[b] = (now() - begin) / calls;
  }
  qsort(times, (size_t)batches, sizeof *times, by_value);
  const double median = times[batches / 2];
  free(times);
  return median;
}

int main(int argc, char** argv) {
  const int rank = join(&argc, &argv);
  const double seconds = atof(argv[1]);
  if (rank == 0)
    printf("{");
  for (int i = 2; i < argc; ++i) {
    const int64_t bytes = atoll(argv[i]), count = bytes / 4;
    float* data = malloc((size_t)count * sizeof *data);
    for (int64_t at = 0; at < count; ++at)
      data[at] = 0.0F; /* touches each page; zeros stay zeros */
    for (int64_t at = 0; at < count; ++at)
      data[at] = 0.0F;
    /* All ranks must make the same number of calls, so it follows from the size alone: about 2 us and 4 GB/s. */
    const double guess = 2e-6 + (double)bytes / 4e9;
    const int calls = guess > 1e-3 ? 1 : (int)(1e-3 / guess);
    const int batches = (int)(seconds / (guess * calls)) + 5;
    const double median = median_seconds(data, count, argv[i], batches > 400 ? 400 : batches, calls);
    if (rank == 0)
      printf("%s\"%s\": %.9f", i > 2 ? ", " : "", argv[i], median);
    free(data);
  }
  if (rank == 0)
    printf("}\n");
  leave();
  return 0;
}
