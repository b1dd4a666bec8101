#include <algorithm>

#include "launcher/jobfile/form_reader.h"
#include "launcher/jobfile/variable_text.h"

namespace hvd::launch {

Result<Tool> FormReader::read_native_tool(const DocValue& root) {
  const DocValue* script = root.find("script");
  const DocValue* command = root.find("command");
  if ((script == nullptr) == (command == nullptr)) {
    return refuse(command == nullptr ? root.at : command->at,
                  command == nullptr ? "neither 'script' nor 'command' is given, which say what to start"
                                     : "'script' and 'command' are both given; one is started");
  }
  Tool tool;
  tool.at = script != nullptr ? script->at : command->at;
  tool.process_count = number_of(root, "processCount");
  tool.script = text_of(root, "script");
  tool.interpreter = text_of(root, "python");
  tool.command_line = text_of(root, "command");
  tool.kind = Toolkit::kHorovod;
  HVD_TRY(check_starts_something(tool));
  if (const DocValue* args = root.find("args"); args != nullptr) {
    tool.args = args->kind == DocValue::Kind::kText ? args->text : "";
    for (const DocValue& word : args->items) {
      tool.args += (tool.args.empty() ? "" : " ") + argument_of(word.text);
    }
  }
  if (command != nullptr && (root.find("args") != nullptr || root.find("python") != nullptr)) {
    return refuse(command->at, "'args' and 'python' go with 'script'; write them into 'command'");
  }
  return tool;
}

Result<void> FormReader::read_native_variables(const DocValue& map, bool is_secret, JobFile& job) {
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    JobVariable variable;
    variable.name = map.keys[i];
    variable.at = map.key_at[i];
    if (map.items[i].kind != DocValue::Kind::kNull) {
      variable.value = map.items[i].text;
    }
    HVD_TRY(add_variable(std::move(variable), is_secret, job));
  }
  return {};
}

Result<JobFile> FormReader::read_native(const DocValue& root) {
  JobFile job;
  if (const DocValue* name = root.find("name"); name != nullptr) {
    if (!is_job_name(name->text)) {
      return refuse(name->at, "'" + shown_text(name->text) +
                                  "' cannot be the name of a job; expected up to 64 letters, digits, - and _");
    }
    job.name = name->text;
  }
  job.node_count = number_of(root, "nodeCount").value_or(number_of(root, "minNodes").value_or(1));
  job.node_count_at = root.find("nodeCount") != nullptr ? root.find("nodeCount")->at : root.at;
  HVD_TRY_ASSIGN(job.tool, read_native_tool(root));
  if (root.find("nodeCount") == nullptr && root.find("minNodes") == nullptr && root.find("maxNodes") != nullptr) {
    return refuse(root.find("maxNodes")->at,
                  "maxNodes without minNodes or nodeCount; say how many nodes it begins with");
  }
  HVD_TRY(read_elastic(root, job));
  if (const DocValue* env = root.find("env"); env != nullptr) {
    HVD_TRY(read_native_variables(*env, false, job));
  }
  if (const DocValue* secrets = root.find("secrets"); secrets != nullptr) {
    HVD_TRY(read_native_variables(*secrets, true, job));
  }
  const DocValue* mounts = root.find("mounts");
  for (std::size_t i = 0; mounts != nullptr && i < mounts->keys.size(); ++i) {
    Mount mount;
    mount.name = mounts->keys[i];
    mount.directory = mounts->items[i].text;
    mount.source = mount.directory;
    mount.at = mounts->key_at[i];
    if (!mount.directory.empty() && mount.directory.front() != '/') {
      return refuse(mounts->items[i].at,
                    "expected the absolute path of a directory on the nodes, found " + mounts->items[i].described());
    }
    HVD_TRY(add_mount(std::move(mount), job));
  }
  job.preparation = text_of(root, "prepare");
  if (const DocValue* output = root.find("output"); output != nullptr) {
    job.output_at = output->at;
    HVD_TRY_ASSIGN(job.output_prefix, written_path(*output, "output"));
  }
  if (const DocValue* image = root.find("container"); image != nullptr) {
    if (image->text.empty() || image->text.front() == '-' ||
        image->text.find_first_of(" \t\r\n") != std::string::npos) {
      return refuse(image->at, "'" + shown_text(image->text) + "' cannot be the name of an image");
    }
    job.container = ContainerImage{image->text, "", "", "", ""};
  }
  if (const DocValue* timeout = root.find("timeout"); timeout != nullptr) {
    const auto parsed = parse_job_duration(timeout->text);
    if (!parsed) {
      return refuse(timeout->at,
                    "timeout: expected seconds or a duration, as in 90m or 1:30:00, found " + timeout->described());
    }
    job.timeout = *parsed;
  }
  job.gpus = text_of(root, "gpus");
  if (const std::string priority = text_of(root, "priority"); !priority.empty()) {
    job.priority = priority;
  }
  if (const DocValue* hosts = root.find("hosts"); hosts != nullptr) {
    job.hosts_at = hosts->at;
    if (hosts->kind == DocValue::Kind::kText) {
      job.hosts.push_back(hosts->text);
    }
    for (const DocValue& host : hosts->items) {
      job.hosts.push_back(host.text);
    }
  }
  return job;
}

}  // namespace hvd::launch
