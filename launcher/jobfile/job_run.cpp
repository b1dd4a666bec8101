#include "launcher/jobfile/job_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "launcher/jobfile/mount_command.h"
#include "launcher/jobfile/variable_text.h"

namespace hvd::launch {
namespace {

// Returns a path of the service's form:
// "{subscription}/{resource group}/workspaces/{workspace}/experiments/{experiment}/jobs/{job}/{uuid}".
// Parts without a meaning here keep their places, so that scripts can still take such paths apart.
std::string segment_of(const JobFile& job, const std::string& uuid) {
  return "00000000-0000-0000-0000-000000000000/hvdrun/workspaces/default/experiments/" + job.experiment + "/jobs/" +
         job.name + "/" + uuid;
}

bool is_directory_name(const std::string& path) {
  return path.starts_with('/') && std::none_of(path.begin(), path.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

const std::string* named_directory(const Mount& mount, const MountMap& map) {
  for (const auto& [name, directory] : map.named) {
    if (name == mount.name) {
      return &directory;
    }
  }
  return nullptr;
}

std::optional<std::string> directory_of(const Mount& mount, const MountMap& map) {
  if (const std::string* directory = named_directory(mount, map); directory != nullptr) {
    return *directory;
  }
  if (!mount.directory.empty()) {
    return mount.directory;
  }
  return map.root.empty() ? std::nullopt : std::optional(map.root + "/" + mount.name);
}

// Returns true when a file system is mounted for the job.
Result<bool> take_file_system(const JobFile& job, const MountMap& map, Mount& mount) {
  const auto is_it = [&mount](const FileSystem& system) { return system.name == mount.name; };
  const auto found = std::find_if(map.file_systems.begin(), map.file_systems.end(), is_it);
  if (found == map.file_systems.end() || named_directory(mount, map) != nullptr) {
    return false;
  }
  FileSystem system = *found;
  if (system.password.empty() && system.password_variable.empty()) {
    system.password = mount.key;
  }
  if (system.needs_password() && system.password.empty()) {
    const std::string variable = system.password_variable.empty() ? kPasswordVariable : system.password_variable;
    return error_at(job.file, mount.at,
                    "the mount '" + shown_text(mount.name) + "' (" + shown_text(described(system)) +
                        ") needs the password of '" + shown_text(system.account) +
                        "', and nobody says it; give it in the environment, as in " + variable + "=... hvdrun ...");
  }
  if (system.password.find_first_of(std::string_view("\n\r\0", 3)) != std::string::npos) {
    return error_at(job.file, mount.at,
                    "the mount '" + shown_text(mount.name) + "': a password of several lines can be given to nobody");
  }
  mount.directory.clear();
  mount.file_system = std::move(system);
  return true;
}

Result<void> resolve_mounts(JobFile& job, const MountMap& map) {
  std::vector<const Mount*> missing;
  for (Mount& mount : job.mounts) {
    HVD_TRY_ASSIGN(const bool is_taken, take_file_system(job, map, mount));
    if (is_taken) {
      continue;
    }
    if (const auto directory = directory_of(mount, map); !directory) {
      missing.push_back(&mount);
    } else if (!is_directory_name(*directory)) {
      return error_at(job.file, mount.at,
                      "the mount '" + shown_text(mount.name) + "': '" + shown_text(*directory) +
                          "' is no absolute path of a directory on the nodes");
    } else {
      mount.directory = *directory;
    }
  }
  if (missing.empty()) {
    return {};
  }
  std::string names;
  for (const Mount* mount : missing) {
    names += (names.empty() ? "'" : ", '") + shown_text(mount->name) + "'";
  }
  const Mount& first = *missing.front();
  const auto is_in_source = [&first](const std::string& text) {
    return !text.empty() && first.source.find(text) != std::string::npos;
  };
  const bool is_secret = std::any_of(job.hidden.begin(), job.hidden.end(), is_in_source);
  return error_at(job.file, first.at,
                  "no directory of the nodes is given for " + names +
                      (is_secret ? "" : " (" + shown_text(first.source) + ")") +
                      "; say it with --mount NAME=DIR, as in --mount " + shown_text(first.name) + "=/data/" +
                      shown_text(first.name) + ", or for all with --mount-root DIR");
}

// Returns those of the job's variables that are known here, for paths that this machine must understand.
std::optional<std::string> known_variable(const JobRun& run, const std::string& name) {
  if (name == "AZ_BATCHAI_JOB_MOUNT_ROOT") {
    return run.mount_root();
  }
  if (name == "AZ_BATCHAI_MOUNT_ROOT") {
    return run.cluster_mount_root();
  }
  if (name == "AZ_BATCHAI_JOB_TEMP") {
    return run.temp();
  }
  if (name == "AZ_BATCHAI_JOB_TEMP_DIR") {
    return run.root;
  }
  if (const auto given = run.options.overridden.find(name); given != run.options.overridden.end()) {
    return given->second;
  }
  for (const JobVariable& variable : run.job.variables) {
    if (variable.name == name && split_variables(*variable.value).size() <= 1 &&
        (variable.value->empty() || !split_variables(*variable.value).front().is_variable)) {
      return variable.value;
    }
  }
  return std::nullopt;
}

// Returns the mount that a path on the nodes leads into; nullptr: none.
const Mount* mount_of(const JobRun& run, const std::string& path) {
  for (const Mount& mount : run.job.mounts) {
    const std::string at = run.mount_point(mount);
    if (path == at || path.starts_with(at + "/")) {
      return &mount;
    }
  }
  return nullptr;
}

// Returns where this machine has a path on the nodes that leads into a mount. nullopt: it leads into no mount, or into
// one that only the nodes have.
std::optional<std::string> folder_in_mounts(const JobRun& run, const std::string& path) {
  const Mount* mount = mount_of(run, path);
  if (mount == nullptr) {
    return std::nullopt;
  }
  const std::string& directory = mount->file_system ? mount->file_system->here : mount->directory;
  return directory.empty() ? std::nullopt : std::optional(directory + path.substr(run.mount_point(*mount).size()));
}

bool ends_with_run(const JobRun& run, const std::string& path) {
  return path == run.root || path.starts_with(run.root + "/");
}

Result<void> place_output(JobRun& run) {
  const JobFile& job = run.job;
  if (job.output_prefix.empty()) {
    return {};
  }
  std::vector<std::string> missing;
  const std::string given = expand_variables(
      job.output_prefix, [&run](const std::string& name) { return known_variable(run, name); }, missing);
  if (!missing.empty()) {
    return error_at(job.file, job.output_at,
                    "nothing here says what $" + missing.front() +
                        " is; expected a directory below $AZ_BATCHAI_JOB_MOUNT_ROOT, or an absolute path");
  }
  const std::string base = run.starts_in_folder() ? run.options.cwd : run.temp();
  // An absolute path stays as it is.
  const std::string prefix = given == "." ? base : (std::filesystem::path(base) / given).string();
  const std::string below = "/" + run.segment + "/stdouterr";
  // Nodes that have a copy of the working directory have it at another path.
  run.output = (run.options.is_synced ? given : prefix) + below;
  const Mount* mount = mount_of(run, prefix);
  const auto folder = folder_in_mounts(run, prefix);
  if (mount != nullptr) {
    // For a linked mount use the link's target, because the link itself ends with the run.
    const std::string& on_nodes = mount->file_system ? prefix : *folder;
    run.shared_in_mount = on_nodes + "/" + run.segment + "/shared";
  }
  if (folder) {
    run.kept_at = *folder + below;
    return {};
  }
  run.kept_at = ends_with_run(run, prefix) ? "" : prefix + below;
  return {};
}

// True when names of files need a node's id.
bool has_several_nodes(const JobRun& run) {
  return run.layout.nodes.size() > 1 || run.job.most_nodes() > 1;
}

std::string digits_of(const JobRun& run, JobProcess::Role role, int index) {
  const char* words[] = {"", "wk-", "ps-"};
  return run.layout.processes.empty() ? "" : words[static_cast<std::size_t>(role)] + std::to_string(index);
}

}  // namespace

std::optional<std::string> directory_here(const JobRun& run, const std::string& text) {
  std::vector<std::string> missing;
  const std::string path =
      expand_variables(text, [&run](const std::string& name) { return known_variable(run, name); }, missing);
  if (!missing.empty() || !path.starts_with('/')) {
    return std::nullopt;
  }
  const auto folder = folder_in_mounts(run, path);
  return folder || ends_with_run(run, path) ? folder : std::optional(path);
}

std::optional<std::string> script_here(const JobRun& run, const std::string& cwd) {
  const std::string& script = run.job.tool.script;
  const bool is_in_container = run.job.container && run.options.container != ContainerChoice::kNone;
  if (script.empty() || is_in_container || script.find_first_of("`*?[~\\'\"") != std::string::npos) {
    return std::nullopt;
  }
  const bool is_relative = !script.starts_with('/') && !script.starts_with('$');
  if (is_relative && (!run.starts_in_folder() || script.find('$') != std::string::npos)) {
    return std::nullopt;
  }
  return is_relative ? std::optional(cwd + "/" + script) : directory_here(run, script);
}

Result<JobRun> make_job_run(JobFile job, JobLayout layout, JobRunOptions options) {
  HVD_TRY(resolve_mounts(job, options.mounts));
  JobRun run;
  run.segment = segment_of(job, options.uuid);
  // The path is short, since sockets of MPI libraries may lie below it, whose paths have at most 107 bytes.
  run.root = "/tmp/hvdrun-job-" + options.id;
  run.job = std::move(job);
  run.layout = std::move(layout);
  run.options = std::move(options);
  HVD_TRY(place_output(run));
  return run;
}

std::string process_file(const JobRun& run, int rank, bool is_error) {
  const JobProcess& process = run.layout.processes[static_cast<std::size_t>(rank)];
  const Toolkit kind = run.job.tool.kind;
  const bool is_own = kind == Toolkit::kTensorFlow || kind == Toolkit::kPyTorch || kind == Toolkit::kCaffe2;
  return std::string(is_error ? "stderr" : "stdout") +
         (is_own ? "-" + digits_of(run, process.role, process.index) : "") + ".txt";
}

std::string preparation_file(const JobRun& run, int node, bool is_error) {
  return std::string(is_error ? "stderr" : "stdout") + "-job_prep" +
         (has_several_nodes(run) ? "-" + run.layout.ids[static_cast<std::size_t>(node)] : "") + ".txt";
}

std::string node_log_file(const JobRun& run, int node) {
  return "execution" + (has_several_nodes(run) ? "-" + run.layout.ids[static_cast<std::size_t>(node)] : "") + ".log";
}

}  // namespace hvd::launch
