#include "launcher/survey/own_system.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <filesystem>
#include <set>
#include <sstream>

#include "launcher/process/own_process.h"
#include "launcher/survey/own_cgroup.h"
#include "launcher/survey/own_cores.h"
#include "launcher/survey/own_interfaces.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"
#include "runtime/io/socket.h"

namespace hvd::launch {
namespace {

namespace fs = std::filesystem;

// Reads "MemTotal:  8000000 kB" into bytes; 0 when it is not there.
std::uint64_t memory_field(const std::string& meminfo, const std::string& name) {
  std::istringstream in(meminfo);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, name.size() + 1, name + ":") == 0) {
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

std::uint64_t limit_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? kUnlimited : static_cast<std::uint64_t>(limit);
}

void take_limits(SystemSurvey& system, const CgroupLimits& cgroup) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    system.open_files = limit_of(limit.rlim_cur);
    system.open_files_most = limit_of(limit.rlim_max);
  }
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    system.locked_memory = limit_of(limit.rlim_cur);
  }
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0) {
    system.processes = std::min(limit_of(limit.rlim_cur), cgroup.processes);
  }
}

// The port is bound and listening for a moment, on every interface as a rank's is.
std::string try_to_listen() {
  const auto any = SocketAddress::make("0.0.0.0", 0);
  if (!any.ok()) {
    return any.error().message();
  }
  const auto listening = listen_tcp(any.value());
  return listening.ok() ? "" : listening.error().message();
}

void take_ports(SystemSurvey& system, const fs::path& root) {
  std::istringstream range(text_of_file(root / "proc/sys/net/ipv4/ip_local_port_range"));
  std::int32_t first = 0;
  std::int32_t last = 0;
  if (range >> first >> last && first >= 0 && last <= 65535) {
    system.first_port = first;
    system.last_port = last;
    // A port in both tables counts twice; the number only has to tell a few free ports from many.
    system.used_ports = count_used_ports(text_of_file(root / "proc/net/tcp"), first, last) +
                        count_used_ports(text_of_file(root / "proc/net/tcp6"), first, last);
  }
  system.listen_error = try_to_listen();
}

}  // namespace

std::string pretty_name(std::string_view os_release) {
  constexpr std::string_view kKey = "PRETTY_NAME=";
  while (!os_release.empty()) {
    std::string_view line = take_until(os_release, '\n');
    if (line.substr(0, kKey.size()) != kKey) {
      continue;
    }
    line.remove_prefix(kKey.size());
    const bool is_quoted = line.size() >= 2 && (line.front() == '"' || line.front() == '\'') && line.back() == line[0];
    return std::string(is_quoted ? line.substr(1, line.size() - 2) : line);
  }
  return "";
}

std::string address_in_hosts(std::string_view hosts, std::string_view name) {
  while (!hosts.empty()) {
    const std::string_view line = take_until(hosts, '\n');
    std::istringstream words{std::string(line.substr(0, line.find('#')))};
    std::string address;
    words >> address;
    for (std::string word; words >> word;) {
      if (word == name) {
        return address;
      }
    }
  }
  return "";
}

std::int32_t count_used_ports(std::string_view tcp_table, std::int32_t first, std::int32_t last) {
  std::set<std::int32_t> used;
  take_until(tcp_table, '\n');  // the heading
  while (!tcp_table.empty()) {
    // "  0: 0100007F:1F90 00000000:0000 0A ..."
    const std::string_view line = take_until(tcp_table, '\n');
    const auto number = line.find(':');
    const auto colon = number == std::string_view::npos ? number : line.find(':', number + 1);
    if (colon == std::string_view::npos) {
      continue;
    }
    std::int32_t port = 0;
    const std::string_view rest = line.substr(colon + 1);
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), port, 16);
    if (parsed.ec == std::errc() && port >= first && port <= last) {
      used.insert(port);
    }
  }
  return static_cast<std::int32_t>(used.size());
}

std::string own_machine(const std::string& root) {
  std::string machine = text_of_file(root + "/proc/sys/kernel/random/boot_id");
  while (machine.ends_with('\n')) {
    machine.pop_back();
  }
  for (const char* name : {"mnt", "net", "ipc"}) {
    std::error_code none;
    machine += " " + fs::read_symlink(root + "/proc/self/ns/" + name, none).string();
  }
  return machine;
}

SystemSurvey own_system(const std::string& root) {
  const fs::path base = root.empty() ? "/" : root;
  SystemSurvey system;
  system.system = pretty_name(text_of_file(base / "etc/os-release"));
  utsname name{};
  if (::uname(&name) == 0) {
    system.kernel = std::string(name.sysname) + " " + name.release;
    system.machine = name.machine;
    system.own_name_address = address_in_hosts(text_of_file(base / "etc/hosts"), name.nodename);
  }
  const auto program = own_program();
  system.agent_path = program.ok() ? program.value() : "";
  const CgroupLimits cgroup = own_cgroup_limits(root);
  system.processors = static_cast<std::int32_t>(allowed_cpus().size());
  system.processor_limit = cgroup.processors;
  const std::string meminfo = text_of_file(base / "proc/meminfo");
  system.memory = memory_field(meminfo, "MemTotal");
  system.memory_free = memory_field(meminfo, "MemAvailable");
  system.memory_limit = cgroup.memory;
  take_limits(system, cgroup);
  take_ports(system, base);
  struct statvfs shared{};
  if (::statvfs((base / "dev/shm").c_str(), &shared) == 0) {
    system.shared = static_cast<std::uint64_t>(shared.f_blocks) * shared.f_frsize;
    system.shared_free = static_cast<std::uint64_t>(shared.f_bavail) * shared.f_frsize;
  }
  system.interfaces = own_interfaces();
  return system;
}

}  // namespace hvd::launch
