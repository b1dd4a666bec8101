// Counts of calls of the fake NCCL, and the failures that tests ask for. Thread: any (one mutex of its own).
#pragma once

#include <cstdint>

namespace hvd::fake::nccl {

// Counts a call; the ncclResult_t that it is to fail with, or 0.
int count_call(const char* function);
std::int64_t calls_of(const char* what);
void add_live(const char* what, int change);
void fail_at(const char* function, int calls, int code);
void hang_at(const char* function, int begins, int rank);
void set_version(int version);
void set_silent(bool is_silent);
void set_delay_us(int delay_us);

// Of what begins now on this rank's device.
bool hangs_now(const char* function, int rank);
// Until the next release().
void wait_for_release();
void release();
bool is_killed_now(const char* function, int rank);
int delay_us(int rank);
int version();
bool is_silent();

}  // namespace hvd::fake::nccl
