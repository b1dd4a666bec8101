#include "launcher/post_mortem/core_file.h"

#include <sys/stat.h>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

constexpr const char* kIn = "in ";

std::string expanded(const std::string& pattern, const CoreDump& dump) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    switch (++i < pattern.size() ? pattern[i] : '\0') {
      case '%':
        path += '%';
        break;
      case 'p':
      case 'P':
        path += std::to_string(dump.pid);
        break;
      case 's':
        path += std::to_string(dump.signo);
        break;
      case 'h':
        path += dump.host;
        break;
      case '\0':
        break;
      default:
        path += '*';
    }
  }
  return path;
}

}  // namespace

std::string core_place(const std::string& pattern, bool uses_pid, const CoreDump& dump) {
  if (pattern.starts_with('|')) {
    const std::string program = pattern.substr(1, pattern.find(' ') - 1);
    const bool is_systemd = program.ends_with("/systemd-coredump");
    return "handed to " + program + (is_systemd ? "; try: coredumpctl info " + std::to_string(dump.pid) : "");
  }
  std::string path = expanded(pattern.empty() ? "core" : pattern, dump);
  if (uses_pid && pattern.find("%p") == std::string::npos) {
    path += "." + std::to_string(dump.pid);
  }
  return kIn + (path.starts_with('/') ? path : dump.cwd + "/" + path);
}

std::string find_core(const CoreDump& dump) {
  const std::string place = core_place(first_line_of_file("/proc/sys/kernel/core_pattern"),
                                       first_line_of_file("/proc/sys/kernel/core_uses_pid") == "1", dump);
  struct stat info{};
  const bool is_one_file = place.starts_with(kIn) && place.find('*') == std::string::npos;
  return is_one_file && ::stat(place.substr(std::string(kIn).size()).c_str(), &info) != 0 ? "" : place;
}

}  // namespace hvd::launch
