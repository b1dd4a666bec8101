// What the fake libnccl.so.2 has beside NCCL's functions, for tests that run in its process. What an environment can
// say of it as well, for those that do not:
//   FAKE_NCCL_VERSION=22703   which version it says that it is; 2.30.0
//   FAKE_NCCL_FAIL=ncclAllReduce:3[:code],...   the third call of the process fails; the code is 1 unless it is given
//   FAKE_NCCL_HANG=ncclAllReduce:2[:rank]   the second that begins on a device (of that rank) is never done; "init": no
//                                           communicator is ever made
//   FAKE_NCCL_KILL=ncclAllReduce:2[:rank]   the process dies by SIGKILL when half of what that one sends is sent;
//                                           "init", "half init": before a communicator is made, or in the middle
//   FAKE_NCCL_SILENT=1        a lost rank is no error, as over links that do not tell
//   FAKE_NCCL_DELAY_US=500[:rank]   before each, on the device
// Its ranks may be threads or processes of one machine: they find each other by abstract unix sockets. Data moves on
// the stream, as a function of the host: a communicator that is aborted lets go of it at once.
#pragma once

#include <cstdint>

extern "C" {
// How often a function was called; "registered call": collectives on memory that was registered; "live comm", "live
// registration": what is not given back yet.
std::int64_t fake_nccl_count(const char* what);
// The `calls`-th call from now on fails with this ncclResult_t; 0 calls: none.
void fake_nccl_fail(const char* function, int calls, int code);
// As FAKE_NCCL_HANG, from now on; 0 begins: none; -1: each. rank -1: any. "ncclCommAbort": that does not return before
// fake_nccl_release().
void fake_nccl_hang(const char* function, int begins, int rank);
void fake_nccl_release();
void fake_nccl_set_version(int version);
void fake_nccl_set_silent(int is_silent);
// Lets each later call wait this long on the device, as FAKE_NCCL_DELAY_US does.
void fake_nccl_set_delay_us(int delay_us);
}
