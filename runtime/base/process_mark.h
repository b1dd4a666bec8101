// ProcessMark identifies the process in which it was made, and distinguishes it from later forks without a system call.
// An object that fork(2) has copied must not be used in the child, and each call on such an object has to check that.
//
// It recognises forks through libc's fork(), whose handlers it uses (pthread_atfork(3)). Thread: any; in the child its
// only one.
#pragma once

#include <cstdint>

namespace hvd {

class ProcessMark {
 public:
  ProcessMark();
  [[nodiscard]] bool is_here() const { return mark_ == forks; }

 private:
  // number of forks between this library's first process and this one; changed only in a new child
  static std::uint64_t forks;
  std::uint64_t mark_;
};

}  // namespace hvd
