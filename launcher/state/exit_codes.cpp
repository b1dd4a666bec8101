#include "launcher/state/exit_codes.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace hvd::launch {

namespace {

// Returns true where the user has named a file or folder that cannot be used as it is.
bool names_wrong_file(const Error& error) {
  constexpr std::array kErrnos = {EACCES, EPERM, EISDIR, ENOTDIR, ENAMETOOLONG, ELOOP, EROFS};
  return std::find(kErrnos.begin(), kErrnos.end(), error.sys_errno()) != kErrnos.end();
}

}  // namespace

int exit_code_of(const Error& error) {
  switch (error.code()) {
    case Code::kInvalid:
    case Code::kNotFound:
      return exit_code::kUsage;
    case Code::kUnreachable:
    case Code::kTimeout:
    case Code::kAuth:
      return exit_code::kUnreachable;
    case Code::kLostPeer:
      return exit_code::kNodeLost;
    case Code::kResource:
    case Code::kProtocol:   // a program of another version, or of somebody else, has answered
    case Code::kCancelled:  // a program that was to help was killed
      return exit_code::kStartFailed;
    case Code::kSystem:
      return names_wrong_file(error) ? exit_code::kUsage : exit_code::kStartFailed;
    case Code::kInternal:
    case Code::kNotInitialized:
    case Code::kMismatch:
      return exit_code::kDefect;
  }
  return exit_code::kDefect;
}

int exit_code_of_start(const Error& error) {
  return error.code() == Code::kNotFound ? exit_code::kStartFailed : exit_code_of(error);
}

}  // namespace hvd::launch
