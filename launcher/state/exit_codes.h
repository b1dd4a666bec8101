// These are hvdrun's own exit codes. A job that ran ends with the code of its first failing rank, 128 + N for signal N.
// Our own codes are numbers that programs seldom use. Public: the manual shows this table.
#pragma once

#include "runtime/base/result.h"

namespace hvd::launch::exit_code {

inline constexpr int kUsage = 240;           // command line, or a file or job that it names, is wrong
inline constexpr int kUnreachable = 241;     // a host could not be reached, or its identity or ours was refused
inline constexpr int kStartFailed = 242;     // agent or ranks could not be started (127: no such program or script)
inline constexpr int kNodeLost = 243;        // a node or the connection to it was lost while the job ran
inline constexpr int kOutputFailed = 244;    // what the ranks printed could not be written (141: its reader has gone)
inline constexpr int kDefect = 245;          // a defect of hvdrun
inline constexpr int kSupervisorLost = 246;  // the supervisor of a service's job was killed, or the machine restarted
inline constexpr int kResetLimit = 247;      // an elastic job has changed more often than --reset-limit allows
inline constexpr int kTimedOut = 124;        // a limit of the job's time is over; timeout(1) has the same code
inline constexpr int kNoProgram = 127;       // no such program or script; shells have the same code
inline constexpr int kReaderGone = 141;      // the reader of the output has gone: 128 + SIGPIPE, as for a Unix filter

}  // namespace hvd::launch::exit_code

namespace hvd::launch {

// Returns the exit code of a command that ends because of `error`: what the user has named wrongly, what could not be
// reached, what could not be started, what was lost, or a defect.
[[nodiscard]] int exit_code_of(const Error& error);

// The same for a job whose ranks could not be started. What is missing then is a program that should have started them,
// not something that the command line names.
[[nodiscard]] int exit_code_of_start(const Error& error);

}  // namespace hvd::launch
