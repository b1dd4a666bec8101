#include "launcher/jobfile/form_reader.h"

#include <algorithm>
#include <iterator>

#include "launcher/job/text_file.h"
#include "launcher/jobfile/variable_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostPathPart = 255;  // NAME_MAX
constexpr std::string_view kAccountPlaceholder = "<AZURE_BATCHAI_STORAGE_ACCOUNT>";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Fills the placeholder in all texts of the file, as az does before it submits a job. Without an account it may stay in
// the addresses of mounts: these are shown, but what is mounted is what the user or the cluster gives for their names.
Result<void> fill_placeholders(DocValue& value, const std::string& account, const std::string& file) {
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const bool may_stay = account.empty() && i < value.keys.size() && value.keys[i] == "mountVolumes";
    HVD_TRY(may_stay ? Result<void>() : fill_placeholders(value.items[i], account, file));
  }
  for (auto at = value.text.find(kAccountPlaceholder); at != std::string::npos;
       at = value.text.find(kAccountPlaceholder, at + account.size())) {
    if (account.empty()) {
      return error_at(file, value.at,
                      std::string(kAccountPlaceholder) +
                          " stands here for the storage account; say it with "
                          "--storage-account-name or the variable AZURE_BATCHAI_STORAGE_ACCOUNT");
    }
    value.text.replace(at, kAccountPlaceholder.size(), account);
  }
  return {};
}

// Returns "train" for "jobs/train.yaml", changed where needed to be a valid job name.
std::string name_of_file(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  name = name.substr(0, name.rfind('.'));
  std::replace_if(name.begin(), name.end(), [](char c) { return !is_word(c) && c != '-'; }, '_');
  name = name.substr(0, kMostJobName);
  return name.empty() ? "job" : name;
}

bool is_within(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// Returns the path that a text begins with, which follows a mount root: "data/a" for "//data/./a --lr=1".
std::string path_begun(std::string_view text) {
  text = text.substr(0, text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"));
  std::string path;
  while (!text.empty()) {
    const std::string_view part = take_until(text, '/');
    if (part == "..") {
      break;
    }
    if (!part.empty() && part != ".") {
      path += (path.empty() ? "" : "/") + std::string(part);
    }
  }
  return path;
}

// Returns the names of mounts, of those that are given, that a path leads into or that lie in it, those above others
// first. A name may have several parts. Where none is given, the cluster had a mount of the path's first part.
std::vector<std::string> mounts_at(const std::string& path, bool is_of_cluster, const std::vector<std::string>& given) {
  std::vector<std::string> names;
  std::copy_if(given.begin(), given.end(), std::back_inserter(names), [&path](const std::string& name) {
    return is_inner_path(name) && !path.empty() && (is_within(path, name) || is_within(name, path));
  });
  std::sort(names.begin(), names.end());
  if (std::string first = path.substr(0, path.find('/')); names.empty() && is_of_cluster && is_inner_path(first)) {
    names.push_back(std::move(first));
  }
  return names;
}

// Adds the notices to an error: a key that was ignored is often a misspelling of the one that is missing.
Error with_notices(const Error& why, const Notices& notices) {
  std::string text = why.message();
  for (const std::string& notice : notices) {
    text += "\n  " + notice;
  }
  return Error(why.code(), text);
}

}  // namespace

const char* tool_type(Toolkit toolkit) {
  constexpr const char* kNames[] = {"horovod", "mpi",   "custom", "pytorch", "tensorflow",
                                    "cntk",    "caffe", "caffe2", "chainer"};
  return kNames[static_cast<std::size_t>(toolkit)];
}

Result<void> check_can_be_elastic(Toolkit toolkit, const std::string& asked_by, const std::string& file, Position at) {
  return toolkit == Toolkit::kHorovod
             ? Result<void>()
             : error_at(file, at,
                        asked_by + ": the processes of a job of type " + tool_type(toolkit) +
                            " start together, and none joins or leaves later; only horovodSettings and the short form "
                            "(script, command) describe elastic jobs");
}

Result<void> FormReader::read_elastic(const DocValue& map, JobFile& job) const {
  for (const char* key : {"maxNodes", "minNodes"}) {
    if (const DocValue* value = map.find(key); value != nullptr) {
      (key[1] == 'i' ? job.min_nodes : job.max_nodes) = number_of(map, key);
      job.elastic_at = value->at;
      HVD_TRY(check_can_be_elastic(job.tool.kind, key, file_, value->at));
    }
  }
  const std::string given = "nodeCount is " + std::to_string(job.node_count);
  if (job.least_nodes() > job.most_nodes() && job.min_nodes && job.max_nodes) {
    return refuse(job.elastic_at, "minNodes is " + std::to_string(*job.min_nodes) + ", more than maxNodes, which is " +
                                      std::to_string(*job.max_nodes));
  }
  if (job.node_count < job.least_nodes() || job.node_count > job.most_nodes()) {
    return refuse(job.elastic_at, given + "; expected from minNodes (" + std::to_string(job.least_nodes()) +
                                      ") to maxNodes (" + std::to_string(job.most_nodes()) + ")");
  }
  return {};
}

bool is_job_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostJobName &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_word(c) || c == '-'; });
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && (name.front() < '0' || name.front() > '9') && std::all_of(name.begin(), name.end(), is_word);
}

bool is_inner_path(std::string_view path) {
  const bool has_control =
      std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (path.empty() || path.front() == '/' || has_control) {
    return false;
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMostPathPart) {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

std::string text_of(const DocValue& map, const char* key) {
  const DocValue* value = map.find(key);
  return value == nullptr ? "" : value->text;
}

std::string program_of(const DocValue& map, const char* key) {
  const std::string path = text_of(map, key);
  return path.starts_with("~/") ? "$HOME" + path.substr(1) : path;
}

std::optional<int> number_of(const DocValue& map, const char* key) {
  const DocValue* value = map.find(key);
  return value == nullptr ? std::nullopt : parse_number<int>(value->text);
}

Result<void> FormReader::check_starts_something(const Tool& tool) const {
  const bool is_empty = tool.script.empty() && tool.config_file.empty() && tool.command_line.empty();
  return is_empty ? refuse(tool.at, "the script or command is empty; say what to start") : Result<void>();
}

Result<std::string> FormReader::inherited(const std::string& name, Position at, const char* why) const {
  for (const std::string& entry : options_.environment) {
    if (entry.starts_with(name + "=")) {
      return entry.substr(name.size() + 1);
    }
  }
  return refuse(at, std::string(why) + "; give it in the environment, as in " + name + "=... hvdrun ...");
}

Result<void> FormReader::add_variable(JobVariable variable, bool is_secret, JobFile& job) const {
  auto& list = is_secret ? job.secrets : job.variables;
  if (!is_variable_name(variable.name)) {
    return refuse(variable.at,
                  "'" + shown_text(variable.name) +
                      "' cannot be the name of a variable; expected letters, digits and _, and no digit first");
  }
  const auto is_same = [&variable](const JobVariable& other) { return other.name == variable.name; };
  if (std::any_of(job.variables.begin(), job.variables.end(), is_same) ||
      std::any_of(job.secrets.begin(), job.secrets.end(), is_same)) {
    return refuse(variable.at, "the variable " + variable.name + " is given twice");
  }
  if (!variable.value) {
    const char* why = is_secret ? "the value of this secret is not in the file" : "this variable has no value here";
    HVD_TRY_ASSIGN(variable.value, inherited(variable.name, variable.at, why));
  }
  if (is_secret) {
    job.hidden.push_back(*variable.value);
  }
  list.push_back(std::move(variable));
  return {};
}

Result<void> FormReader::add_mount(Mount mount, JobFile& job) const {
  if (!is_inner_path(mount.name)) {
    return refuse(mount.at, "'" + shown_text(mount.name) +
                                "' cannot be where something is mounted; expected a path below the mount root, without "
                                "'..' and control characters");
  }
  for (const Mount& other : job.mounts) {
    const bool is_inside = is_within(mount.name, other.name) || is_within(other.name, mount.name);
    if (other.is_of_cluster == mount.is_of_cluster && is_inside) {
      return refuse(mount.at, "two mounts at '" + shown_text(mount.name) + "', or one inside of the other");
    }
  }
  job.mounts.push_back(std::move(mount));
  return {};
}

// Refuses '..' in a path that is written to, since it could lead anywhere; and '~', which nothing here expands.
Result<std::string> FormReader::written_path(const DocValue& value, const char* what) const {
  const std::string& path = value.text;
  if (path.starts_with('~')) {
    return refuse(value.at, std::string(what) + ": '" + shown_text(path) +
                                "' begins with ~, which means no home here; write the absolute path, as in "
                                "/home/me/logs, or one below $AZ_BATCHAI_JOB_MOUNT_ROOT");
  }
  std::string below;  // without the parts that change nothing: "./logs//" is "logs"
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = take_until(rest, '/');
    if (!part.empty() && part != ".") {
      below += (below.empty() ? "" : "/") + std::string(part);
    }
  }
  if (path.empty() || (!below.empty() && !is_inner_path(below))) {
    return refuse(value.at,
                  std::string(what) + ": '" + shown_text(value.text) +
                      "' cannot be a directory to write to; '..' and control characters are not allowed in it");
  }
  if (path.starts_with('/')) {
    return "/" + below;
  }
  return below.empty() ? "." : below;
}

// Job files of 2017 could not mount anything themselves; they name what the cluster had mounted. Later ones may leave
// it to the command line (--afs-name) or to the cluster, and name what these mount.
void FormReader::add_named_mounts(const DocValue& value, JobFile& job) const {
  for (const DocValue& item : value.items) {
    add_named_mounts(item, job);
  }
  const auto pieces = split_variables(value.text);
  for (std::size_t i = 0; value.kind == DocValue::Kind::kText && i + 1 < pieces.size(); ++i) {
    Mount mount;
    mount.is_of_cluster = pieces[i].text == "AZ_BATCHAI_MOUNT_ROOT";
    if (!pieces[i].is_variable || pieces[i + 1].is_variable || !pieces[i + 1].text.starts_with('/') ||
        (!mount.is_of_cluster && pieces[i].text != "AZ_BATCHAI_JOB_MOUNT_ROOT")) {
      continue;
    }
    mount.source = mount.is_of_cluster ? "what the cluster had there" : "what the user or the cluster mounts there";
    mount.at = value.at;
    for (const std::string& name : mounts_at(path_begun(pieces[i + 1].text), mount.is_of_cluster, options_.mounts)) {
      mount.name = name;
      const auto is_in_the_way = [&mount](const Mount& other) {
        return other.is_of_cluster == mount.is_of_cluster &&
               (is_within(other.name, mount.name) || is_within(mount.name, other.name));
      };
      if (std::none_of(job.mounts.begin(), job.mounts.end(), is_in_the_way)) {
        job.mounts.push_back(mount);
      }
    }
  }
}

// Puts the variable in the place of the folder of cluster mounts, where the service had it. Within single quotes a
// shell would leave the variable alone, so that such texts stay as they are.
void use_mount_root(DocValue& value) {
  constexpr std::string_view kFolder = "/mnt/batch/tasks/shared/LS_root/mounts/";
  for (DocValue& item : value.items) {
    use_mount_root(item);
  }
  if (value.kind != DocValue::Kind::kText || value.text.find('\'') != std::string::npos) {
    return;
  }
  for (std::size_t at = 0; (at = value.text.find(kFolder, at)) != std::string::npos;) {
    value.text.replace(at, kFolder.size(), "$AZ_BATCHAI_MOUNT_ROOT/");
  }
}

Result<LoadedJobFile> parse_job_file(std::string_view text, const std::string& file, const JobFileOptions& options) {
  HVD_TRY_ASSIGN(DocValue root, parse_document(text, file));
  LoadedJobFile loaded;
  const bool is_batchai = root.find("properties") != nullptr;
  if (is_batchai) {
    use_mount_root(root);
  }
  if (!is_batchai && root.kind == DocValue::Kind::kMap) {
    for (std::size_t i = 0; i < root.keys.size(); ++i) {
      if (root.keys[i].ends_with("Settings") || root.keys[i] == "stdOutErrPathPrefix") {
        return error_at(file, root.key_at[i],
                        "'" + shown_text(root.keys[i]) + "' belongs below 'properties', as in {\"properties\": {...}}");
      }
    }
  }
  const Schema& schema = is_batchai ? batchai_schema() : native_schema();
  Notices unknown;
  if (const auto checked = check(root, schema, file, unknown); !checked.ok()) {
    return with_notices(checked.error(), unknown);
  }
  drop_unknown(root, schema);
  HVD_TRY(fill_placeholders(root, options.storage_account, file));
  FormReader reader(file, options, loaded.notices);
  auto job = is_batchai ? read_batchai(root, reader) : read_native(root, reader);
  if (!job.ok()) {
    return with_notices(job.error(), unknown);
  }
  if (!is_batchai && !unknown.empty()) {
    const bool is_near = unknown.front().find("; did you mean '") != std::string::npos;
    const Error first(Code::kInvalid,
                      unknown.front() + (is_near ? "" : "; hvdrun --document schema shows those that do"));
    return with_notices(first, {unknown.begin() + 1, unknown.end()});
  }
  // Batch AI's tools dropped such keys without a word, so files that have them once ran.
  for (const std::string& key : unknown) {
    loaded.notices.push_back(key + " (ignored)");
  }
  loaded.job = std::move(job).value();
  const Notices lost = lost_names(root, loaded.job, file);
  loaded.notices.insert(loaded.notices.end(), lost.begin(), lost.end());
  loaded.job.file = file;
  loaded.job.is_native = !is_batchai;
  if (loaded.job.name.empty()) {
    loaded.job.name = name_of_file(file);
  }
  return loaded;
}

Result<std::string> read_job_text(const std::string& file) {
  return read_text_file(file, "the job file", kMostJobFileBytes + 1);
}

Result<LoadedJobFile> read_job_file(const std::string& file, const JobFileOptions& options) {
  HVD_TRY_ASSIGN(const std::string text, read_job_text(file));
  return parse_job_file(text, file, options);
}

}  // namespace hvd::launch
