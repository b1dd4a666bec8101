// ProcessMark: the process in which it was made, told from later forks of that without a system call: an object that
// was copied by fork(2) must not be used in the child, and each call on it has to know.
//
// Seen are forks through libc's fork(), whose handlers it uses (pthread_atfork(3)). Thread: any; the child's only one.
#pragma once

#include <cstdint>

namespace hvd {

class ProcessMark {
 public:
  ProcessMark();
  [[nodiscard]] bool is_here() const { return mark_ == forks; }

 private:
  static std::uint64_t forks;  // between this library's first process and this one; changed only in a new child
  std::uint64_t mark_;
};

}  // namespace hvd
