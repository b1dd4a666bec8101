/* Makes the time of day jump by a day, ahead and back, each time it is asked for, as a clock that is set does while a
 * job runs. By LD_PRELOAD; the monotonic clock stays. */
#define _GNU_SOURCE
#include <sys/time.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

static long jump(void) {
  static atomic_int calls;
  return (atomic_fetch_add(&calls, 1) % 3 - 1) * 86400L;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) {
    real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  }
  const int code = real(clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    now->tv_sec += jump();
  }
  return code;
}

int gettimeofday(struct timeval* now, void* zone) {
  struct timespec time;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) {
    *result = now.tv_sec;
  }
  return now.tv_sec;
}
