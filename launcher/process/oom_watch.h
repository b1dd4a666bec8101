// OomWatch: whether the kernel has killed processes of this machine for lack of memory since this object was made, so
// that a rank that ends by SIGKILL can be told from one that somebody killed.
//
// Source: oom_kill in /proc/vmstat (Linux 4.13, proc(5)), which counts kills for a cgroup's limit too. In a container
// it may also count a neighbour's, so it makes a cause likely and not certain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hvd::launch {

class OomWatch {
 public:
  // `vmstat`: another file for tests.
  explicit OomWatch(std::string vmstat = "/proc/vmstat");
  // Each kill since construction is told once: of two ranks that were killed so, both calls say yes.
  [[nodiscard]] bool has_killed();

 private:
  [[nodiscard]] std::optional<std::uint64_t> count() const;

  const std::string vmstat_;
  std::optional<std::uint64_t> seen_;
};

}  // namespace hvd::launch
