#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "launcher/report/check_text.h"
#include "launcher/report/quantities.h"
#include "launcher/report/text_grid.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Returns the tone of the worst finding about a host and these subjects.
Tone tone_of(const std::vector<Finding>& findings, int host, std::initializer_list<Subject> subjects) {
  Tone tone = Tone::kPlain;
  for (const Finding& finding : findings) {
    const bool is_about = std::find(subjects.begin(), subjects.end(), finding.subject) != subjects.end() &&
                          std::find(finding.hosts.begin(), finding.hosts.end(), host) != finding.hosts.end();
    if (is_about) {
      tone = std::max(tone, finding.is_problem ? Tone::kProblem : Tone::kWarning);
    }
  }
  return tone;
}

std::string processors_text(const SystemSurvey& system) {
  const bool is_limited = system.processor_limit > 0 && system.processor_limit < system.processors;
  return (is_limited ? formatted("%.3g", system.processor_limit) + "/" : "") + std::to_string(system.processors);
}

std::string memory_text(const SystemSurvey& system) {
  const std::uint64_t most = std::min(system.memory, system.memory_limit);
  return bytes_text(std::min(system.memory_free, most)) + " of " + bytes_text(most);
}

struct HostColumn {
  const char* heading;
  bool is_right;
  int rank;  // GridColumn's
  std::vector<Subject> subjects;
  std::function<std::string(const CheckedHost&)> text;  // for a host that was reached; empty: not known
};

std::vector<HostColumn> host_columns() {
  const auto of_system = [](const auto& text) {
    return [text](const CheckedHost& host) { return host.system ? text(*host.system) : std::string(); };
  };
  const auto of_interface = [](const auto& text) {
    return [text](const CheckedHost& host) {
      const InterfaceSurvey* interface = data_interface(host);
      return interface == nullptr ? std::string() : text(*interface);
    };
  };
  return {
      {"way", false, 5, {}, [](const CheckedHost& host) { return host.transport; }},
      {"after", true, 4, {}, [](const CheckedHost& host) { return seconds_text(host.reach_time); }},
      {"clock",
       true,
       0,
       {Subject::kClock},
       [](const CheckedHost& host) { return host.clock ? offset_text(host.clock->offset) : std::string(); }},
      {"slots", true, 6, {}, [](const CheckedHost& host) { return std::to_string(host.plan.local_size()); }},
      {"cpus", true, 0, {Subject::kProcessors}, of_system(processors_text)},
      {"free memory", true, 0, {Subject::kMemory}, of_system(memory_text)},
      {"gpus",
       true,
       0,
       {Subject::kGpus},
       [](const CheckedHost& host) { return std::to_string(host.ready->gpus.size()); }},
      {"address", false, 0, {Subject::kAddress}, [](const CheckedHost& host) { return host.address; }},
      {"mtu", true, 1, {Subject::kMtu}, of_interface([](const InterfaceSurvey& interface) {
         return std::to_string(interface.mtu);
       })},
      {"speed", true, 2, {Subject::kInterfaceSpeed}, of_interface([](const InterfaceSurvey& interface) {
         return interface.speed_mbit > 0 ? speed_text(interface.speed_mbit) : std::string();
       })},
      {"interface", false, 3, {}, of_interface([](const InterfaceSurvey& interface) { return interface.name; })},
  };
}

bool has_reached_any(const CheckResult& result) {
  return std::any_of(result.hosts.begin(), result.hosts.end(), [](const CheckedHost& host) { return !!host.ready; });
}

// ---- details that are printed once for all hosts that share them ----

using Detail = std::function<std::string(const CheckedHost&)>;

std::string agent_text(const CheckedHost& host) {
  const std::string path = host.system ? host.system->agent_path : "";
  const auto dash = path.rfind("/agent-");  // the path of a pushed agent contains its content's hash
  constexpr std::size_t kDigits = 8;
  const std::string hash = dash == std::string::npos ? "" : path.substr(dash + 7, kDigits);
  return host.ready->version + (hash.empty() ? "" : " (" + hash + ")") + ", reached by " + host.transport +
         (host.opened.was_pushed ? ", pushed now" : "");
}

std::string system_text(const CheckedHost& host) {
  if (!host.system) {
    return "";
  }
  const std::string& name = host.system->system;
  return (name.empty() ? "" : name + ", ") + host.system->kernel + ", " + host.system->machine;
}

std::string gpu_text(const CheckedHost& host) {
  if (host.ready->gpus.empty() || !host.software) {
    return "";
  }
  const SoftwareSurvey& software = *host.software;
  std::string text = std::to_string(host.ready->gpus.size());
  if (!software.gpus.empty()) {
    text += " x " + software.gpus.front().name;
    text += software.gpus.front().memory > 0 ? ", " + bytes_text(software.gpus.front().memory) : "";
  }
  return text + (software.driver.empty() ? "" : ", driver " + software.driver);
}

std::string program_text(const CheckedHost& host) {
  if (!host.software || !host.software->error.empty()) {
    return "";
  }
  const SoftwareSurvey& software = *host.software;
  if (software.program.empty()) {
    return software.program_error.empty() ? "" : "none found";  // not looked for: --sync brings it
  }
  if (software.python.empty()) {
    return software.program + (software.python_error.empty() ? "" : " (does not run)");
  }
  const std::string cuda = software.torch_cuda.empty() ? "" : " for CUDA " + software.torch_cuda;
  return software.python + ", torch " + (software.torch.empty() ? "none" : software.torch + cuda) + ", horovod " +
         (software.horovod.empty() ? "none" : software.horovod) + ", " + software.program;
}

std::string script_text(const CheckedHost& host) {
  if (!host.software || host.software->script.empty()) {
    return "";
  }
  return host.software->script + (host.software->script_error.empty() ? "" : " (cannot be read)");
}

std::string limit_text(std::uint64_t limit) {
  return limit == kUnlimited ? "unlimited" : std::to_string(limit);
}

std::string limits_text(const CheckedHost& host) {
  if (!host.system) {
    return "";
  }
  const SystemSurvey& system = *host.system;
  const bool can_grow = system.open_files_most > system.open_files;
  return limit_text(system.open_files) + " open files" +
         (can_grow ? " (" + limit_text(system.open_files_most) + " if asked for)" : "") + ", " +
         limit_text(system.processes) + " processes, " +
         (system.locked_memory == kUnlimited ? "unlimited" : bytes_text(system.locked_memory)) + " locked memory";
}

// Rounds the count of used ports to 10 %. Exact counts always differ, and equal hosts are printed as one group.
std::string ports_text(const CheckedHost& host) {
  if (!host.system || host.system->last_port == 0) {
    return "";
  }
  const SystemSurvey& system = *host.system;
  const int all = system.last_port - system.first_port + 1;
  const int tenths = all > 0 ? (system.used_ports * 10 + all - 1) / all : 10;
  return std::to_string(system.first_port) + " to " + std::to_string(system.last_port) +
         (tenths <= 1 ? ", nearly all of them free" : ", " + std::to_string(std::min(tenths, 10) * 10) + " % in use");
}

std::string space_text(const CheckedHost& host) {
  if (!host.system) {
    return "";
  }
  std::string text = "/dev/shm " + bytes_text(host.system->shared);
  if (host.software && host.software->error.empty()) {
    text += "; free: cache " + bytes_text(host.software->cache.free) + ", " + host.software->temporary.path + " " +
            bytes_text(host.software->temporary.free);
  }
  return text;
}

std::string mpirun_text(const CheckedHost& host) {
  return host.software ? host.software->mpirun : "";
}

struct DetailRow {
  const char* heading;
  std::vector<Subject> subjects;
  Detail text;
};

std::vector<DetailRow> detail_rows(bool names_program) {
  return {{"agent", {Subject::kAgent}, agent_text},
          {"system", {Subject::kSystem}, system_text},
          {"GPUs", {Subject::kGpus}, gpu_text},
          {names_program ? "program" : "Python", {Subject::kProgram}, program_text},
          {"script", {Subject::kScript}, script_text},
          {"mpirun", {Subject::kMpirun}, mpirun_text},
          {"limits", {Subject::kLimits}, limits_text},
          {"TCP ports", {Subject::kPorts}, ports_text},
          {"space", {Subject::kSpace}, space_text}};
}

Tone tone_of(const std::vector<Finding>& findings, int host, const std::vector<Subject>& subjects) {
  Tone tone = Tone::kPlain;
  for (const Subject subject : subjects) {
    tone = std::max(tone, tone_of(findings, host, {subject}));
  }
  return tone;
}

// Groups the hosts by their text, in the order in which each text first occurred.
std::vector<std::pair<std::string, std::vector<int>>> grouped(const CheckResult& result, const Detail& text) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    const std::string value = result.hosts[host].ready ? shown(text(result.hosts[host])) : "";
    if (value.empty()) {
      continue;
    }
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == value; });
    if (found == groups.end()) {
      groups.push_back({value, {static_cast<int>(host)}});
    } else {
      found->second.push_back(static_cast<int>(host));
    }
  }
  return groups;
}

}  // namespace

std::vector<std::string> host_table(const CheckResult& result, const std::vector<Finding>& findings,
                                    const CheckTextOptions& options) {
  std::vector<GridColumn> columns;
  GridColumn names{{"host", Tone::kHeading}, false, 0, {}};
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    const bool has_failed = result.hosts[host].error.has_value();
    names.cells.push_back({shown(result.hosts[host].name()), has_failed ? Tone::kProblem : Tone::kPlain, has_failed});
  }
  columns.push_back(std::move(names));
  for (const HostColumn& source : host_columns()) {
    GridColumn column{{source.heading, Tone::kHeading}, source.is_right, source.rank, {}};
    bool is_empty = true;
    for (std::size_t host = 0; host < result.hosts.size(); ++host) {
      const CheckedHost& checked = result.hosts[host];
      const std::string text = checked.ready ? shown(source.text(checked)) : "";
      const Tone tone = tone_of(findings, static_cast<int>(host), source.subjects);
      is_empty = is_empty && text.empty();
      column.cells.push_back(text.empty() ? GridCell{"-", Tone::kFaint} : GridCell{text, tone, tone >= Tone::kWarning});
    }
    if (!is_empty) {
      columns.push_back(std::move(column));
    }
  }
  return has_reached_any(result) ? grid_lines(std::move(columns), options.width, options.color)
                                 : std::vector<std::string>();
}

std::vector<std::string> host_details(const CheckResult& result, const std::vector<Finding>& findings,
                                      const CheckTextOptions& options) {
  constexpr std::size_t kHeadingWidth = 11;
  std::vector<std::string> lines;
  for (const DetailRow& row : detail_rows(result.names_program)) {
    std::string heading = row.heading;
    const auto groups = grouped(result, row.text);
    for (const auto& [value, hosts] : groups) {
      Tone tone = Tone::kPlain;
      for (const int host : hosts) {
        tone = std::max(tone, tone_of(findings, host, row.subjects));
      }
      const std::string who = groups.size() > 1 ? shown(host_names(result, hosts)) + ": " : "";
      const std::string pad(kHeadingWidth - heading.size(), ' ');
      auto own =
          wrapped(std::string(kHeadingWidth, ' '), who + value + (tone >= Tone::kWarning ? "!" : ""), options.width);
      for (std::string& line : own) {
        line = std::string(kHeadingWidth, ' ') + toned(line.substr(kHeadingWidth), tone, options.color);
      }
      own.front().replace(0, kHeadingWidth, toned(heading, Tone::kHeading, options.color) + pad);
      lines.insert(lines.end(), own.begin(), own.end());
      heading.clear();
    }
  }
  return lines;
}

}  // namespace hvd::launch
