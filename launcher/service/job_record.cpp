#include "launcher/service/job_record.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>
#include <time.h>

#include "launcher/job/hidden_texts.h"
#include "launcher/jobfile/mount_command.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 5> kStates = {"queued", "running", "terminating", "succeeded", "failed"};

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

const char* settings_name(const JobFile& job) {
  switch (job.tool.kind) {
    case Toolkit::kHorovod:
      return "horovodSettings";
    case Toolkit::kCustomMpi:
      return "customMpiSettings";
    case Toolkit::kCustom:
      return "customToolkitSettings";
    case Toolkit::kPyTorch:
      return "pyTorchSettings";
    case Toolkit::kTensorFlow:
      return "tensorFlowSettings";
    case Toolkit::kCntk:
      return "cntkSettings";
    case Toolkit::kCaffe:
      return "caffeSettings";
    case Toolkit::kCaffe2:
      return "caffe2Settings";
    case Toolkit::kChainer:
      break;
  }
  return "chainerSettings";
}

Json tool_json(const JobRun& run) {
  const Tool& tool = run.job.tool;
  Json json = Json::object();
  const auto put = [&json](const char* key, const std::string& text) {
    if (!text.empty()) {
      json[key] = text;
    }
  };
  put("commandLine", tool.command_line);
  put("pythonScriptFilePath", tool.script);
  put("configFilePath", tool.config_file);
  put("pythonInterpreterPath", tool.interpreter);
  if (tool.kind == Toolkit::kTensorFlow) {
    put("masterCommandLineArgs", tool.master_args);
    put("workerCommandLineArgs", tool.args);
    put("parameterServerCommandLineArgs", tool.server_args);
    json["workerCount"] = or_null(tool.worker_count);
    json["parameterServerCount"] = or_null(tool.server_count);
  } else {
    put("commandLineArgs", tool.args);
    put("communicationBackend", tool.backend);
    json["processCount"] = run.layout.size();
  }
  return json;
}

Json mounts_json(const JobFile& job) {
  Json mounts = Json::array();
  for (const Mount& mount : job.mounts) {
    mounts.push_back({{"relativeMountPath", mount.name},
                      {"source", text_or_null(mount.source)},
                      {"directory", text_or_null(mount.directory)}});
    if (mount.file_system) {
      mounts.back()["fileSystem"] = described(*mount.file_system);
    }
  }
  return mounts;
}

Json inputs_json(const JobFile& job) {
  Json all = Json::array();
  for (const NamedPath& input : job.inputs) {
    all.push_back({{"id", input.id}, {"path", input.path}});
  }
  return all;
}

Json outputs_json(const JobRun& run) {
  Json all = Json::array();
  for (const OutputDirectory& output : run.job.outputs) {
    all.push_back({{"id", output.id},
                   {"pathPrefix", output.prefix},
                   {"pathSuffix", text_or_null(output.suffix)},
                   {"createNew", output.is_new},
                   {"localPathPrefix", or_null(directory_here(run, output.prefix))}});
  }
  return all;
}

Json variables_json(const std::vector<JobVariable>& variables, bool is_secret) {
  Json all = Json::array();
  for (const JobVariable& variable : variables) {
    all.push_back({{"name", variable.name}, {"value", is_secret ? Json() : or_null(variable.value)}});
  }
  return all;
}

Json execution_info(const JobRecord& record) {
  if (record.started_ms == 0 && record.ended_ms == 0) {
    return {};
  }
  Json errors;
  if (!record.error.code.empty()) {
    Json details;
    if (!record.error.details.empty()) {
      details = Json::array({{{"name", "output"}, {"value", record.error.details}}});
    }
    errors = Json::array({{{"code", record.error.code}, {"message", record.error.message}, {"details", details}}});
  }
  return {{"startTime", text_or_null(utc_text(record.started_ms))},
          {"endTime", text_or_null(utc_text(record.ended_ms))},
          {"exitCode", or_null(record.exit_code)},
          {"errors", errors}};
}

}  // namespace

bool is_job_number(std::string_view reference) {
  return !reference.empty() &&
         std::all_of(reference.begin(), reference.end(), [](char c) { return c >= '0' && c <= '9'; });
}

const char* state_name(ExecutionState state) {
  return kStates[static_cast<std::size_t>(state)];
}

void rename_job(JobRecord& job, const std::string& name) {
  constexpr std::string_view kBefore = "/jobs/";
  const std::string fitting = name.substr(0, kMostJobName);
  if (const auto at = job.segment.find(std::string(kBefore) + job.name + "/"); at != std::string::npos) {
    job.segment.replace(at + kBefore.size(), job.name.size(), fitting);
  }
  job.name = fitting;
}

const char* listed_state(const JobRecord& job) {
  return was_stopped(job) ? "stopped" : state_name(job.state);
}

std::string listed_nodes(const JobRecord& job) {
  if (job.max_nodes == 0) {
    return std::to_string(job.node_count);
  }
  const std::string range = std::to_string(job.min_nodes) + "-" + std::to_string(job.max_nodes);
  return job.nodes.empty() ? range : std::to_string(job.nodes.size()) + " of " + range;
}

std::optional<ExecutionState> state_of(const std::string& name) {
  const auto* const found = std::find(kStates.begin(), kStates.end(), name);
  return found == kStates.end() ? std::nullopt : std::optional(static_cast<ExecutionState>(found - kStates.begin()));
}

std::string properties_json(const JobRun& run) {
  const JobFile& job = run.job;
  Json json = Json::object();
  json["nodeCount"] = job.node_count;
  json["minNodes"] = job.is_elastic() ? Json(job.least_nodes()) : Json();
  json["maxNodes"] = job.is_elastic() ? Json(job.most_nodes()) : Json();
  json[settings_name(job)] = tool_json(run);
  json["stdOutErrPathPrefix"] = text_or_null(job.output_prefix);
  json["mountVolumes"] = mounts_json(job);
  json["inputDirectories"] = inputs_json(job);
  json["outputDirectories"] = outputs_json(run);
  json["environmentVariables"] = variables_json(job.variables, false);
  json["secrets"] = variables_json(job.secrets, true);
  json["jobPreparation"] = job.preparation.empty() ? Json() : Json({{"commandLine", job.preparation}});
  json["containerSettings"] =
      job.container ? Json({{"imageSourceRegistry", {{"image", job.container->image}}}}) : Json();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(job.timeout).count();
  json["constraints"] = {{"maxWallClockTime", seconds > 0 ? Json("PT" + std::to_string(seconds) + "S") : Json()}};
  mask_values(json, hidden_texts(job.hidden));  // they may also occur in command lines
  return dump(json);
}

std::string record_json(const JobRecord& record) {
  Json json = Json::object();
  json["id"] = record.engine_job.empty() ? Json(record.id) : Json(record.engine_job);
  json["name"] = record.name;
  json["cluster"] = {{"id", record.cluster}};
  json["experiment"] = record.experiment;
  json["toolType"] = record.tool;
  json["schedulingPriority"] = record.priority_word;
  json["jobOutputDirectoryPathSegment"] = record.segment;
  json["stdOutErrDirectory"] = text_or_null(record.output);
  json["creationTime"] = utc_text(record.created_ms);
  json["provisioningState"] = "succeeded";
  json["provisioningStateTransitionTime"] = utc_text(record.created_ms);
  json["executionState"] = state_name(record.state);
  json["executionStateTransitionTime"] = utc_text(record.changed_ms);
  json["executionInfo"] = execution_info(record);
  json["currentNodeCount"] = record.nodes.size();
  json["nodes"] = Json::array();
  for (const JobNode& node : record.nodes) {
    json["nodes"].push_back({{"nodeId", node.name}, {"ipAddress", text_or_null(node.address)}});
  }
  if (const Json properties = Json::parse(record.properties, nullptr, false); properties.is_object()) {
    json.update(properties);
  }
  return dump(json);
}

std::optional<std::string> json_field(const std::string& json, const std::string& path) {
  Json value = Json::parse(json, nullptr, false);
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    const std::optional<std::size_t> index = parse_number<std::size_t>(key);
    if (value.is_object() && value.contains(key)) {
      value = Json(value[key]);
    } else if (value.is_array() && index && *index < value.size()) {
      value = Json(value[*index]);
    } else {
      return std::nullopt;
    }
    begin = end + 1;
  }
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : dump(value);
}

// The names are those of process_file(). An engine keeps all that a job's hvdrun prints, in one file.
bool has_file_per_process(const JobRecord& record) {
  constexpr std::array kOwn = {Toolkit::kTensorFlow, Toolkit::kPyTorch, Toolkit::kCaffe2};
  return record.engine_job.empty() &&
         std::any_of(kOwn.begin(), kOwn.end(), [&record](Toolkit kind) { return record.tool == tool_type(kind); });
}

std::string default_file(const JobRecord& record, bool is_error) {
  const std::string stream = is_error ? "stderr" : "stdout";
  if (!has_file_per_process(record)) {
    return stream + ".txt";
  }
  return stream + (record.tool == tool_type(Toolkit::kTensorFlow) ? "-wk-0.txt" : "-0.txt");
}

std::vector<std::string> printed_files(const JobRecord& record, bool is_error) {
  if (record.output.empty()) {
    return {};
  }
  if (!has_file_per_process(record)) {
    return {record.output + "/" + default_file(record, is_error)};
  }
  std::vector<std::string> files = record.rank_files;
  if (is_error) {
    for (std::string& file : files) {
      file.replace(file.rfind('/') + 1, std::string_view("stdout").size(), "stderr");
    }
  }
  return files;
}

std::optional<std::string> output_directory(const JobRecord& record, const std::string& id) {
  const Json properties = Json::parse(record.properties, nullptr, false);
  const auto outputs = properties.is_object() ? properties.value("outputDirectories", Json::array()) : Json::array();
  const auto text_of = [](const Json& output, const char* key) {
    return output.contains(key) && output[key].is_string() ? output[key].get<std::string>() : std::string();
  };
  for (const Json& output : outputs) {
    const std::string prefix = text_of(output, "localPathPrefix");
    const std::string suffix = text_of(output, "pathSuffix");
    if (text_of(output, "id") != id || prefix.empty()) {
      continue;
    }
    if (output.value("createNew", true)) {
      if (record.segment.empty()) {  // the hvdrun that an engine starts chooses it
        return std::nullopt;
      }
      return prefix + "/" + record.segment + "/" + (suffix.empty() ? "outputs" : suffix);
    }
    return suffix.empty() ? prefix : prefix + "/" + suffix;
  }
  return std::nullopt;
}

std::string utc_text(std::int64_t ms) {
  if (ms == 0) {
    return "";
  }
  const auto seconds = static_cast<time_t>(ms / 1000);
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  const std::size_t size = ::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S+00:00", &utc);
  return {text.data(), size};
}

std::string nodes_text(const std::vector<JobNode>& nodes) {
  Json all = Json::array();
  for (const JobNode& node : nodes) {
    all.push_back({node.name, node.address});
  }
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<JobNode> nodes_of_text(const std::string& text) {
  std::vector<JobNode> nodes;
  for (const Json& item : Json::parse(text, nullptr, false)) {
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      nodes.push_back({item[0].get<std::string>(), item[1].get<std::string>()});
    }
  }
  return nodes;
}

std::string names_text(const std::vector<std::string>& names) {
  return Json(names).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> names_of_text(const std::string& text) {
  std::vector<std::string> names;
  for (const Json& item : Json::parse(text, nullptr, false)) {
    if (item.is_string()) {
      names.push_back(item.get<std::string>());
    }
  }
  return names;
}

}  // namespace hvd::launch
