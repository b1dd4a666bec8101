/* Measures the fastest allreduce of float32 that this machine's memory allows. Each of N threads has its own vector,
 * reduces its part of all vectors, and then copies the other threads' parts. There are no messages and only two
 * barriers, so a program that moves the same bytes between processes cannot be faster. For 2 threads it reads and
 * writes 5 times the vector's size. Prints JSON, as allreduce_rank.c does.
 *
 * Usage: allreduce_limit THREADS SECONDS BYTES... */
#define _GNU_SOURCE
#include <sched.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS 64

static int threads, batches;
static int64_t count;
static float* vectors[MAX_THREADS];
static double* times;
static atomic_int arrived;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

/* A barrier. It spins, because a sleeping thread wakes up late, and yields, because cores may be fewer than threads. */
static void meet(int* round) {
  ++*round;
  atomic_fetch_add(&arrived, 1);
  for (int spins = 0; atomic_load(&arrived) < *round * threads; ++spins) {
    if (spins % 100 == 99)
      sched_yield();
  }
}

static void reduce_part(int own) {
  const int64_t begin = count * own / threads, end = count * (own + 1) / threads;
  float* restrict into = vectors[own];
  for (int other = 0; other < threads; ++other) {
    const float* restrict from = vectors[other];
    for (int64_t i = begin; other != own && i < end; ++i)
      into[i] += from[i];
  }
}

static void take_parts(int own) {
  for (int other = 0; other < threads; ++other) {
    const int64_t begin = count * other / threads, end = count * (other + 1) / threads;
    if (other != own)
      memcpy(vectors[own] + begin, vectors[other] + begin, (size_t)(end - begin) * sizeof(float));
  }
}

static void* work(void* argument) {
  const int own = (int)(intptr_t)argument;
  cpu_set_t one;
  if (sched_getaffinity(0, sizeof one, &one) == 0 && CPU_COUNT(&one) >= threads) {
    int seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &one) && seen++ != own)
        CPU_CLR(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
  }
  memset(vectors[own], 0, (size_t)count * sizeof(float));
  int round = 0;
  for (int b = -2; b < batches; ++b) { /* the first two warm up */
    meet(&round);
    const double begin = now();
    reduce_part(own);
    meet(&round);
    take_parts(own);
    meet(&round);
    if (own == 0 && b >= 0)
      times[b] = now() - begin;
  }
  return NULL;
}

int main(int argc, char** argv) {
  threads = argc > 3 ? atoi(argv[1]) : 0;
  if (threads < 1 || threads > MAX_THREADS) {
    fprintf(stderr, "usage: allreduce_limit THREADS SECONDS BYTES...\n");
    return 2;
  }
  printf("{");
  for (int i = 3; i < argc; ++i) {
    count = atoll(argv[i]) / 4;
    const double guess = 1e-6 + (double)count * 4 / 8e9;
    batches = (int)(atof(argv[2]) / guess) + 5;
    batches = batches > 400 ? 400 : batches;
    times = malloc((size_t)batches * sizeof *times);
    atomic_store(&arrived, 0);
    pthread_t others[MAX_THREADS];
    for (int t = 0; t < threads; ++t)
      vectors[t] = aligned_alloc(4096, ((size_t)count * sizeof(float) + 4095) / 4096 * 4096);
    for (int t = 0; t < threads; ++t)
      pthread_create(&others[t], NULL, work, (void*)(intptr_t)t);
    for (int t = 0; t < threads; ++t)
      pthread_join(others[t], NULL);
    qsort(times, (size_t)batches, sizeof *times, by_value);
    printf("%s\"%s\": %.9f", i > 3 ? ", " : "", argv[i], times[batches / 2]);
    for (int t = 0; t < threads; ++t)
      free(vectors[t]);
    free(times);
  }
  printf("}\n");
  return 0;
}
