#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "launcher/jobfile/form_reader.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

struct ToolKey {
  const char* key;
  Toolkit kind;
};
constexpr std::array<ToolKey, 9> kToolKeys = {{{"horovodSettings", Toolkit::kHorovod},
                                               {"customMpiSettings", Toolkit::kCustomMpi},
                                               {"customToolkitSettings", Toolkit::kCustom},
                                               {"pyTorchSettings", Toolkit::kPyTorch},
                                               {"tensorFlowSettings", Toolkit::kTensorFlow},
                                               {"cntkSettings", Toolkit::kCntk},
                                               {"caffeSettings", Toolkit::kCaffe},
                                               {"caffe2Settings", Toolkit::kCaffe2},
                                               {"chainerSettings", Toolkit::kChainer}}};

// az replaced this text by the storage account's key. The text itself is no key: with no other one at hand, a mount
// that needs a key is refused, and the message names the variable.
constexpr std::string_view kKeyPlaceholder = "<AZURE_BATCHAI_STORAGE_KEY>";

// Returns the key that holds the path of programs in the named language; empty: no language is named, so either key
// will do.
std::string path_of_language(const std::string& language) {
  return language.empty()                                     ? ""
         : language.front() == 'B' || language.front() == 'b' ? "configFilePath"
                                                              : "pythonScriptFilePath";
}

// BatchAiForm reads one job file in Azure Batch AI's form.
class BatchAiForm {
 public:
  BatchAiForm(const DocValue& properties, FormReader& reader) : properties_(properties), reader_(reader) {}

  Result<JobFile> read();

 private:
  Result<Tool> read_tool() const;
  Result<void> read_mounts(const DocValue& volumes);
  Result<void> read_directories();
  Result<void> read_container(const DocValue& container);
  Result<void> read_variables(const DocValue& list, bool is_secret);

  const DocValue& properties_;
  FormReader& reader_;
  JobFile job_;
};

Result<Tool> BatchAiForm::read_tool() const {
  const DocValue* settings = nullptr;
  Tool tool;
  for (std::size_t i = 0; i < properties_.keys.size(); ++i) {
    const auto found = std::find_if(kToolKeys.begin(), kToolKeys.end(),
                                    [&](const ToolKey& tool_key) { return properties_.keys[i] == tool_key.key; });
    if (found == kToolKeys.end() || properties_.items[i].kind == DocValue::Kind::kNull) {
      continue;
    }
    if (settings != nullptr) {
      return reader_.refuse(properties_.key_at[i], "'" + properties_.keys[i] + "' is a second toolkit; a job has one");
    }
    settings = &properties_.items[i];
    tool.kind = found->kind;
    tool.at = properties_.key_at[i];
  }
  if (settings == nullptr) {
    return reader_.refuse(properties_.at,
                          "no toolkit, which says what to start; as in \"horovodSettings\": {\"pythonScriptFilePath\": "
                          "\"train.py\"}");
  }
  tool.command_line = text_of(*settings, "commandLine");
  tool.script = program_of(*settings, "pythonScriptFilePath");
  tool.interpreter = program_of(*settings, "pythonInterpreterPath");
  tool.config_file = program_of(*settings, "configFilePath");
  tool.args = text_of(*settings, tool.kind == Toolkit::kTensorFlow ? "workerCommandLineArgs" : "commandLineArgs");
  tool.master_args = text_of(*settings, "masterCommandLineArgs");
  tool.server_args = text_of(*settings, "parameterServerCommandLineArgs");
  tool.backend = text_of(*settings, "communicationBackend");
  tool.process_count = number_of(*settings, "processCount");
  tool.worker_count = number_of(*settings, "workerCount");
  tool.server_count = number_of(*settings, "parameterServerCount");
  const std::string language = text_of(*settings, "languageType");
  if (const std::string path = path_of_language(language); !path.empty() && text_of(*settings, path.c_str()).empty()) {
    return reader_.refuse(tool.at, "languageType is " + shown_text(language) + ", whose programs are named by " + path);
  }
  const bool takes_script = tool.kind == Toolkit::kCntk || tool.kind == Toolkit::kCaffe;
  if (takes_script && tool.script.empty() == tool.config_file.empty()) {
    return reader_.refuse(tool.at, tool.script.empty()
                                       ? "neither pythonScriptFilePath nor configFilePath is given"
                                       : "pythonScriptFilePath and configFilePath are both given; one is run");
  }
  HVD_TRY(reader_.check_starts_something(tool));
  return tool;
}

// Adds the passwords of a mount command (mount -t cifs -o username=u,password=p) to what no output may show.
void hide_passwords(const std::string& command, std::vector<std::string>& hidden) {
  for (const std::string_view key : {"password=", "pass=", "passwd=", "account-key="}) {
    for (auto at = command.find(key); at != std::string::npos; at = command.find(key, at + 1)) {
      const std::size_t begin = at + key.size();
      const std::size_t end = std::min(command.find_first_of(", \t'\"", begin), command.size());
      if (end > begin) {
        hidden.push_back(command.substr(begin, end - begin));
      }
    }
  }
}

Result<void> BatchAiForm::read_mounts(const DocValue& volumes) {
  struct Kind {
    const char* key;
    const char* source;
  };
  constexpr std::array<Kind, 4> kKinds = {{{"azureFileShares", "azureFileUrl"},
                                           {"azureBlobFileSystems", "containerName"},
                                           {"fileServers", "sourceDirectory"},
                                           {"unmanagedFileSystems", "mountCommand"}}};
  for (const Kind& kind : kKinds) {
    const DocValue* list = volumes.find(kind.key);
    for (std::size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
      const DocValue& entry = list->items[i];
      Mount mount;
      mount.name = text_of(entry, "relativeMountPath");
      mount.source = text_of(entry, kind.source);
      mount.at = entry.find("relativeMountPath")->at;
      if (const DocValue* credentials = entry.find("credentials"); credentials != nullptr) {
        const std::string key = text_of(*credentials, "accountKey");
        mount.key = key == kKeyPlaceholder ? "" : key;
        job_.hidden.push_back(mount.key);
      }
      hide_passwords(mount.source, job_.hidden);
      HVD_TRY(reader_.add_mount(std::move(mount), job_));
    }
  }
  return {};
}

Result<void> BatchAiForm::read_directories() {
  const auto check_id = [this](const DocValue& entry) -> Result<std::string> {
    const DocValue& id = *entry.find("id");
    const std::string name = "AZ_" + id.text;
    if (id.text.empty() || !is_variable_name(name)) {
      return reader_.refuse(
          id.at, "'" + shown_text(id.text) +
                     "' cannot be the id of a directory: it is a part of a variable's name (letters, digits, _)");
    }
    return id.text;
  };
  if (const DocValue* inputs = properties_.find("inputDirectories"); inputs != nullptr) {
    for (const DocValue& entry : inputs->items) {
      HVD_TRY_ASSIGN(const std::string id, check_id(entry));
      const auto is_same = [&id](const NamedPath& other) { return other.id == id; };
      if (std::any_of(job_.inputs.begin(), job_.inputs.end(), is_same)) {
        return reader_.refuse(entry.at, "the input directory " + id + " is given twice");
      }
      job_.inputs.push_back({id, text_of(entry, "path"), entry.at});
    }
  }
  if (const DocValue* outputs = properties_.find("outputDirectories"); outputs != nullptr) {
    for (const DocValue& entry : outputs->items) {
      OutputDirectory directory;
      HVD_TRY_ASSIGN(directory.id, check_id(entry));
      const auto is_same = [&directory](const OutputDirectory& other) { return other.id == directory.id; };
      if (std::any_of(job_.outputs.begin(), job_.outputs.end(), is_same)) {
        return reader_.refuse(entry.at, "the output directory " + directory.id + " is given twice");
      }
      HVD_TRY_ASSIGN(directory.prefix, reader_.written_path(*entry.find("pathPrefix"), "pathPrefix"));
      if (const DocValue* suffix = entry.find("pathSuffix"); suffix != nullptr && !suffix->text.empty()) {
        HVD_TRY_ASSIGN(directory.suffix, reader_.written_path(*suffix, "pathSuffix"));
      }
      directory.is_new = lowered(text_of(entry, "createNew")) != "false";  // YAML has False, too
      directory.at = entry.at;
      job_.outputs.push_back(std::move(directory));
    }
  }
  return {};
}

Result<void> BatchAiForm::read_container(const DocValue& container) {
  ContainerImage image;
  image.shm_size = text_of(container, "shmSize");
  const DocValue* registry = container.find("imageSourceRegistry");
  if (registry == nullptr) {
    return {};
  }
  image.image = text_of(*registry, "image");
  image.registry = text_of(*registry, "serverUrl");
  if (!is_image_name(image.image)) {
    return reader_.refuse(registry->find("image")->at,
                          "'" + shown_text(image.image) + "' cannot be the name of an image");
  }
  if (const DocValue* credentials = registry->find("credentials"); credentials != nullptr) {
    image.user = text_of(*credentials, "username");
    image.password = text_of(*credentials, "password");
    job_.hidden.push_back(image.password);
    if (image.password.empty()) {
      reader_.note(credentials->at, "the registry's password is not in the file; log in on the nodes (podman login " +
                                        shown_text(image.server()) + "), or write 'password'");
    }
  }
  job_.container = std::move(image);
  return {};
}

Result<void> BatchAiForm::read_variables(const DocValue& list, bool is_secret) {
  for (const DocValue& entry : list.items) {
    JobVariable variable;
    variable.name = text_of(entry, "name");
    variable.at = entry.find("name")->at;
    if (const DocValue* value = entry.find("value"); value != nullptr) {
      variable.value = value->text;
    } else if (!is_secret) {
      variable.value = "";  // the service's meaning in 2017
    }
    HVD_TRY(reader_.add_variable(std::move(variable), is_secret, job_));
  }
  return {};
}

Result<JobFile> BatchAiForm::read() {
  job_.node_count = number_of(properties_, "nodeCount").value_or(1);
  job_.node_count_at = properties_.find("nodeCount")->at;
  HVD_TRY_ASSIGN(job_.tool, read_tool());
  HVD_TRY(reader_.read_elastic(properties_, job_));
  const DocValue& prefix = *properties_.find("stdOutErrPathPrefix");
  job_.output_at = prefix.at;
  HVD_TRY_ASSIGN(job_.output_prefix, reader_.written_path(prefix, "stdOutErrPathPrefix"));
  if (const DocValue* volumes = properties_.find("mountVolumes"); volumes != nullptr) {
    HVD_TRY(read_mounts(*volumes));
  }
  reader_.add_named_mounts(properties_, job_);
  HVD_TRY(read_directories());
  if (const DocValue* container = properties_.find("containerSettings"); container != nullptr) {
    HVD_TRY(read_container(*container));
  }
  if (const DocValue* preparation = properties_.find("jobPreparation"); preparation != nullptr) {
    job_.preparation = text_of(*preparation, "commandLine");
  }
  if (const DocValue* variables = properties_.find("environmentVariables"); variables != nullptr) {
    HVD_TRY(read_variables(*variables, false));
  }
  if (const DocValue* secrets = properties_.find("secrets"); secrets != nullptr) {
    HVD_TRY(read_variables(*secrets, true));
  }
  const DocValue* constraints = properties_.find("constraints");
  const DocValue* longest = constraints == nullptr ? nullptr : constraints->find("maxWallClockTime");
  if (longest != nullptr) {
    const auto parsed = parse_job_duration(longest->text);
    if (!parsed) {
      return reader_.refuse(
          longest->at, "maxWallClockTime: expected a duration, as in P7D or 7.00:00:00, found " + longest->described());
    }
    job_.timeout = *parsed;
  }
  if (const std::string experiment = text_of(properties_, "experimentName"); is_job_name(experiment)) {
    job_.experiment = experiment;
  }
  if (const std::string priority = text_of(properties_, "schedulingPriority"); !priority.empty()) {
    job_.priority = lowered(priority);
  } else if (const DocValue* number = properties_.find("priority"); number != nullptr) {
    job_.priority = number->text;  // the form of 2017
  }
  if (const DocValue* retries = constraints == nullptr ? nullptr : constraints->find("maxRetryCount");
      retries != nullptr) {
    reader_.note(retries->at, "'maxRetryCount' has no effect: a job that has failed is not run again");
  }
  for (const char* key : {"cluster", "location"}) {
    if (const DocValue* value = properties_.find(key); value != nullptr) {
      reader_.note(value->at, std::string("'") + key + "' has no effect: hosts are what -H or --hostfile say");
    }
  }
  return std::move(job_);
}

}  // namespace

Result<JobFile> read_batchai(const DocValue& root, FormReader& reader) {
  return BatchAiForm(*root.find("properties"), reader).read();
}

}  // namespace hvd::launch
