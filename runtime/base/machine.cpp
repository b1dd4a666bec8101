#include "runtime/base/machine.h"

#include <fstream>

#include "runtime/base/fd.h"

namespace hvd {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name;
  // Read only the lines of the first processor; an empty line ends them.
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const auto colon = line.find(':');
    const auto begin = colon == std::string::npos ? colon : line.find_first_not_of(' ', colon + 1);
    if (begin == std::string::npos) {
      continue;
    }
    if (line.starts_with("model name")) {
      return line.substr(begin);
    }
    if (line.starts_with("CPU implementer") || line.starts_with("CPU part")) {
      name += (name.empty() ? "" : " ") + line.substr(begin);
    }
  }
  return name.empty() ? "unknown" : name;
}

std::string boot_id() {
  return first_line_of_file("/proc/sys/kernel/random/boot_id");
}

}  // namespace hvd
