/* This is one rank of scripts/bench. It joins its job, passes a barrier, and prints the time after it in seconds of
 * CLOCK_MONOTONIC. With -DWITH_MPI it is built against MPI, else against libhvd. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef WITH_MPI
#include <mpi.h>
static void join(int* argc, char*** argv) {
  if (MPI_Init(argc, argv) != MPI_SUCCESS || MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS)
    MPI_Abort(MPI_COMM_WORLD, 1);
}
static void leave(void) {
  MPI_Finalize();
}
#else
#include "hvd/hvd.h"
static void join(int* argc, char*** argv) {
  (void)argc, (void)argv;
  hvd_op op = HVD_OP_INIT;
  op.kind = HVD_BARRIER;
  int64_t handle;
  if (hvd_init(NULL) != HVD_OK || hvd_execute(NULL, &op, &handle) != HVD_OK || hvd_release(NULL, handle) != HVD_OK) {
    fprintf(stderr, "%s\n", hvd_last_error());
    exit(1);
  }
}
static void leave(void) {
  hvd_shutdown();
}
#endif

int main(int argc, char** argv) {
  join(&argc, &argv);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  printf("%lld.%09ld\n", (long long)t.tv_sec, t.tv_nsec);
  fflush(stdout);
  leave();
  return 0;
}
