#include "launcher/report/check_json.h"

#include <nlohmann/json.hpp>

namespace hvd::launch {
namespace {

using Json = nlohmann::ordered_json;

double seconds_of(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Returns null where there is no limit.
Json limit_of(std::uint64_t limit) {
  return limit == kUnlimited ? Json() : Json(limit);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json folder_json(const FolderSurvey& folder) {
  return {{"path", folder.path},
          {"free_bytes", folder.error.empty() ? Json(folder.free) : Json()},
          {"error", text_or_null(folder.error)}};
}

void add_system(Json& json, const SystemSurvey& system) {
  json["system"] = system.system;
  json["kernel"] = system.kernel;
  json["machine"] = system.machine;
  json["agent"]["path"] = system.agent_path;
  json["processors"] = system.processors;
  json["processor_limit"] = system.processor_limit > 0 ? Json(system.processor_limit) : Json();
  json["memory_bytes"] = system.memory;
  json["memory_free_bytes"] = system.memory_free;
  json["memory_limit_bytes"] = limit_of(system.memory_limit);
  json["limits"] = {{"open_files", limit_of(system.open_files)},
                    {"open_files_hard", limit_of(system.open_files_most)},
                    {"locked_memory_bytes", limit_of(system.locked_memory)},
                    {"processes", limit_of(system.processes)}};
  json["ports"] = {{"first", system.first_port},
                   {"last", system.last_port},
                   {"used", system.used_ports},
                   {"error", text_or_null(system.listen_error)}};
  json["shared_memory"] = {{"bytes", system.shared}, {"free_bytes", system.shared_free}};
  json["own_name_address"] = text_or_null(system.own_name_address);
  json["interfaces"] = Json::array();
  for (const InterfaceSurvey& interface : system.interfaces) {
    json["interfaces"].push_back({{"name", interface.name},
                                  {"addresses", interface.addresses},
                                  {"mtu", interface.mtu},
                                  {"speed_mbit", interface.speed_mbit > 0 ? Json(interface.speed_mbit) : Json()}});
  }
}

void add_software(Json& json, const SoftwareSurvey& software) {
  json["driver"] = text_or_null(software.driver);
  json["gpu_models"] = Json::array();
  for (const GpuSurvey& gpu : software.gpus) {
    json["gpu_models"].push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory > 0 ? Json(gpu.memory) : Json()}});
  }
  json["cache"] = folder_json(software.cache);
  json["temporary"] = folder_json(software.temporary);
  json["directory"] = folder_json(software.directory);
  json["program"] = {{"path", text_or_null(software.program)}, {"error", text_or_null(software.program_error)}};
  json["script"] = {{"path", text_or_null(software.script)}, {"error", text_or_null(software.script_error)}};
  json["python"] = {{"version", text_or_null(software.python)},
                    {"error", text_or_null(software.python_error)},
                    {"torch", text_or_null(software.torch)},
                    {"torch_cuda", text_or_null(software.torch_cuda)},
                    {"horovod", text_or_null(software.horovod)}};
  json["python"]["packages"] = Json::object();
  for (const auto& [name, version] : software.packages) {
    json["python"]["packages"][name] = version;
  }
  json["mpirun"] = {{"version", text_or_null(software.mpirun)}, {"error", text_or_null(software.mpirun_error)}};
}

Json host_json(const CheckedHost& host) {
  Json json;
  json["host"] = host.name();
  json["slots"] = host.plan.local_size();
  json["transport"] = host.transport;
  json["reached"] = host.ready.has_value();
  json["error"] = host.error ? Json(host.error->message()) : Json();
  json["notes"] = host.notices;
  if (!host.ready) {
    return json;
  }
  json["seconds"] = seconds_of(host.reach_time);
  json["agent"] = {{"version", host.ready->version}, {"pushed", host.opened.was_pushed}, {"path", nullptr}};
  json["host_name"] = host.ready->host_name;
  json["address"] = text_or_null(host.address);
  json["gpus"] = host.ready->gpus;
  json["cores"] = host.ready->cores.size();
  json["clock_offset_seconds"] = host.clock ? Json(seconds_of(host.clock->offset)) : Json();
  json["clock_uncertainty_seconds"] = host.clock ? Json(seconds_of(host.clock->uncertainty)) : Json();
  // What the host has not told in time is null, so that programs find the same names for each host.
  Json untold;
  if (host.system) {
    add_system(json, *host.system);
  } else {
    add_system(untold, SystemSurvey());
  }
  if (host.software && host.software->error.empty()) {
    add_software(json, *host.software);
  } else {
    add_software(untold, SoftwareSurvey());
  }
  for (const auto& [name, value] : untold.items()) {
    if (!json.contains(name)) {
      json[name] = nullptr;
    }
  }
  return json;
}

Json link_json(const CheckResult& result, const CheckedLink& link) {
  const double round_trip = seconds_of(link.round_trip);
  return {{"from", result.hosts[static_cast<std::size_t>(link.from)].name()},
          {"to", result.hosts[static_cast<std::size_t>(link.to)].name()},
          {"tried", link.was_tried},
          {"error", text_or_null(link.error)},
          {"round_trip_seconds", round_trip > 0 ? Json(round_trip) : Json()},
          {"bytes_per_second", link.bytes_per_second > 0 ? Json(link.bytes_per_second) : Json()}};
}

Json finding_json(const CheckResult& result, const Finding& finding) {
  Json hosts = Json::array();
  for (const int host : finding.hosts) {
    hosts.push_back(result.hosts[static_cast<std::size_t>(host)].name());
  }
  return {{"subject", name_of(finding.subject)},
          {"severity", finding.is_problem ? "problem" : "warning"},
          {"hosts", hosts},
          {"message", finding.what},
          {"advice", text_or_null(finding.advice)}};
}

}  // namespace

std::string check_json(const CheckResult& result, const std::vector<Finding>& findings) {
  const int code = exit_code_of(result, findings);
  Json json;
  json["version"] = HVD_VERSION;
  json["can_start"] = code == 0;
  json["exit_code"] = code;
  json["interrupted"] = result.interrupted_by != 0;
  json["seconds"] = seconds_of(result.took);
  json["hosts"] = Json::array();
  for (const CheckedHost& host : result.hosts) {
    json["hosts"].push_back(host_json(host));
  }
  json["links"] = Json::array();
  for (const CheckedLink& link : result.links) {
    json["links"].push_back(link_json(result, link));
  }
  json["findings"] = Json::array();
  for (const Finding& finding : findings) {
    json["findings"].push_back(finding_json(result, finding));
  }
  // Replace what is not UTF-8 instead of throwing: a host may report any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hvd::launch
