#include <utility>

#include "launcher/jobfile/form_reader.h"
#include "launcher/jobfile/variable_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Returns a text as it is, and a list of words as the arguments that read_arguments() reads as them.
std::string words_of(const DocValue* value) {
  if (value == nullptr) {
    return "";
  }
  std::string text = value->kind == DocValue::Kind::kText ? value->text : "";
  for (const DocValue& word : value->items) {
    add_to_list(text, argument_of(word.text), " ");
  }
  return text;
}

// NativeForm reads one job file in our own, short form.
class NativeForm {
 public:
  NativeForm(const DocValue& root, const FormReader& reader) : root_(root), reader_(reader) {}

  Result<JobFile> read();

 private:
  Result<Tool> read_tool() const;
  Result<void> read_variables(const DocValue& map, bool is_secret);

  const DocValue& root_;
  const FormReader& reader_;
  JobFile job_;
};

Result<Tool> NativeForm::read_tool() const {
  const DocValue* script = root_.find("script");
  const DocValue* command = root_.find("command");
  if ((script == nullptr) == (command == nullptr)) {
    return reader_.refuse(command == nullptr ? root_.at : command->at,
                          command == nullptr ? "neither 'script' nor 'command' is given, which say what to start"
                                             : "'script' and 'command' are both given; one is started");
  }
  Tool tool;
  tool.at = script != nullptr ? script->at : command->at;
  tool.process_count = number_of(root_, "processCount");
  tool.script = program_of(root_, "script");
  tool.interpreter = program_of(root_, "python");
  tool.command_line = words_of(command);
  if (command != nullptr && command->kind == DocValue::Kind::kList) {
    HVD_TRY_ASSIGN(const ArgumentWords words, read_arguments(tool.command_line));
    tool.command_line = words.shell_text;
  }
  tool.kind = Toolkit::kHorovod;
  HVD_TRY(reader_.check_starts_something(tool));
  tool.args = words_of(root_.find("args"));
  if (command != nullptr && (root_.find("args") != nullptr || root_.find("python") != nullptr)) {
    return reader_.refuse(command->at, "'args' and 'python' go with 'script'; write them into 'command'");
  }
  return tool;
}

Result<void> NativeForm::read_variables(const DocValue& map, bool is_secret) {
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    JobVariable variable;
    variable.name = map.keys[i];
    variable.at = map.key_at[i];
    if (map.items[i].kind != DocValue::Kind::kNull) {
      variable.value = map.items[i].text;
    }
    HVD_TRY(reader_.add_variable(std::move(variable), is_secret, job_));
  }
  return {};
}

Result<JobFile> NativeForm::read() {
  if (const DocValue* name = root_.find("name"); name != nullptr) {
    if (!is_job_name(name->text)) {
      return reader_.refuse(name->at, "'" + shown_text(name->text) +
                                          "' cannot be the name of a job; expected up to 64 letters, digits, - and _");
    }
    job_.name = name->text;
  }
  job_.node_count = number_of(root_, "nodeCount").value_or(number_of(root_, "minNodes").value_or(1));
  job_.node_count_at = root_.find("nodeCount") != nullptr ? root_.find("nodeCount")->at : root_.at;
  HVD_TRY_ASSIGN(job_.tool, read_tool());
  if (root_.find("nodeCount") == nullptr && root_.find("minNodes") == nullptr && root_.find("maxNodes") != nullptr) {
    return reader_.refuse(root_.find("maxNodes")->at,
                          "maxNodes without minNodes or nodeCount; say how many nodes it begins with");
  }
  HVD_TRY(reader_.read_elastic(root_, job_));
  if (const DocValue* env = root_.find("env"); env != nullptr) {
    HVD_TRY(read_variables(*env, false));
  }
  if (const DocValue* secrets = root_.find("secrets"); secrets != nullptr) {
    HVD_TRY(read_variables(*secrets, true));
  }
  const DocValue* mounts = root_.find("mounts");
  for (std::size_t i = 0; mounts != nullptr && i < mounts->keys.size(); ++i) {
    Mount mount;
    mount.name = mounts->keys[i];
    mount.directory = mounts->items[i].text;
    mount.source = mount.directory;
    mount.at = mounts->key_at[i];
    if (!mount.directory.empty() && mount.directory.front() != '/') {
      return reader_.refuse(mounts->items[i].at, "expected the absolute path of a directory on the nodes, found " +
                                                     mounts->items[i].described());
    }
    HVD_TRY(reader_.add_mount(std::move(mount), job_));
  }
  job_.preparation = text_of(root_, "prepare");
  if (const DocValue* output = root_.find("output"); output != nullptr) {
    job_.output_at = output->at;
    HVD_TRY_ASSIGN(job_.output_prefix, reader_.written_path(*output, "output"));
  }
  if (const DocValue* image = root_.find("container"); image != nullptr) {
    if (image->text.empty() || image->text.front() == '-' ||
        image->text.find_first_of(" \t\r\n") != std::string::npos) {
      return reader_.refuse(image->at, "'" + shown_text(image->text) + "' cannot be the name of an image");
    }
    job_.container = ContainerImage{image->text, "", "", "", ""};
  }
  if (const DocValue* timeout = root_.find("timeout"); timeout != nullptr) {
    const auto parsed = parse_job_duration(timeout->text);
    if (!parsed) {
      return reader_.refuse(
          timeout->at, "timeout: expected seconds or a duration, as in 90m or 1:30:00, found " + timeout->described());
    }
    job_.timeout = *parsed;
  }
  job_.gpus = lowered(text_of(root_, "gpus"));
  if (const std::string priority = text_of(root_, "priority"); !priority.empty()) {
    job_.priority = lowered(priority);
  }
  if (const DocValue* hosts = root_.find("hosts"); hosts != nullptr) {
    job_.hosts_at = hosts->at;
    if (hosts->kind == DocValue::Kind::kText) {
      job_.hosts.push_back(hosts->text);
    }
    for (const DocValue& host : hosts->items) {
      job_.hosts.push_back(host.text);
    }
  }
  return std::move(job_);
}

}  // namespace

Result<JobFile> read_native(const DocValue& root, const FormReader& reader) {
  return NativeForm(root, reader).read();
}

}  // namespace hvd::launch
