#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "cli/service_commands.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/jobfile/job_layout.h"
#include "launcher/report/listing.h"
#include "launcher/service/file_follower.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front
using Json = nlohmann::ordered_json;

struct FileRow {
  std::string name;
  bool is_directory = false;
  std::int64_t size = 0;
  std::int64_t modified_ms = 0;
};

Result<std::vector<FileRow>> files_in(const std::string& folder) {
  std::vector<FileRow> rows;
  std::error_code failed;
  for (auto it = std::filesystem::directory_iterator(folder, failed); it != std::filesystem::directory_iterator();
       it.increment(failed)) {
    struct stat info{};
    if (::stat(it->path().c_str(), &info) != 0) {
      continue;  // the file was removed meanwhile
    }
    rows.push_back({it->path().filename().string(), S_ISDIR(info.st_mode), static_cast<std::int64_t>(info.st_size),
                    static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1000});
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    return Error::from_errno("cannot read the folder " + folder, failed.value());
  }
  std::sort(rows.begin(), rows.end(), [](const FileRow& a, const FileRow& b) { return a.name < b.name; });
  return rows;
}

// Returns "stdout-job_prep-node1.txt" for "stdout-job_prep.txt" and node1.
std::string name_for_node(const std::string& name, const std::string& node) {
  const auto dot = std::min(name.rfind('.'), name.size());
  return name.substr(0, dot) + "-" + node + name.substr(dot);
}

Result<std::string> file_name_of(const JobRecord& job, const ServiceOptions& options) {
  if (!options.file.empty() && !is_inner_path(options.file)) {
    return Error(Code::kInvalid, "--file '" + shown_text(options.file) + "': expected the name of a file of the job");
  }
  if (options.node.empty()) {
    return options.file.empty() ? default_file(job, false) : options.file;
  }
  std::vector<std::string> hosts;
  for (const JobNode& node : job.nodes) {
    hosts.push_back(node.name);
  }
  const auto place = std::find(hosts.begin(), hosts.end(), options.node);
  // Before the job has nodes, any node may become its own.
  if ((!hosts.empty() && place == hosts.end()) || !is_inner_path(options.node) ||
      options.node.find('/') != std::string::npos) {
    return Error(Code::kInvalid, "--node '" + shown_text(options.node) + "': no node of job " + job.name +
                                     " has that name; hvdrun nodes " + job.name + " shows those that it has");
  }
  const std::string id = hosts.empty() ? file_ids({options.node}).front()
                                       : file_ids(hosts)[static_cast<std::size_t>(place - hosts.begin())];
  const std::string name = options.file.empty() ? "execution.log" : options.file;
  return job.node_count == 1 && job.max_nodes <= 1 ? name : name_for_node(name, id);
}

Result<std::string> directory_of(const JobRecord& job, const std::string& id) {
  if (id == "stdouterr") {
    return job.output;  // empty before the job has nodes
  }
  const auto directory = output_directory(job, id);
  if (!directory) {
    return Error(Code::kInvalid, "-d '" + shown_text(id) +
                                     "': the job has no output directory of that name that could be " +
                                     "seen from this machine; stdouterr is there always");
  }
  return *directory;
}

Result<std::string> folder_of(const JobRecord& job, const ServiceOptions& options) {
  if (options.path != "." && !is_inner_path(options.path)) {
    return Error(Code::kInvalid, "-p '" + shown_text(options.path) + "': expected a folder of the job");
  }
  HVD_TRY_ASSIGN(const std::string folder, directory_of(job, options.directory));
  return folder.empty() || options.path == "." ? folder : folder + "/" + options.path;
}

// Returns the file's path as far as it is known: empty before the job has nodes.
Result<std::string> file_of(const JobRecord& job, const ServiceOptions& options) {
  if (options.rank >= 0) {
    if (!options.file.empty() || !options.node.empty() || options.path != ".") {
      return Error(Code::kInvalid, "--rank says which file; --file, --path and --node say another");
    }
    const auto rank = static_cast<std::size_t>(options.rank);
    // Ranks that have joined are numbered on.
    const auto count = std::max(static_cast<std::size_t>(job.process_count), job.rank_files.size());
    if (rank >= count) {
      return Error(Code::kInvalid, "--rank " + std::to_string(options.rank) + ": job " + job.name + " has " +
                                       std::to_string(count) + " ranks");
    }
    return rank < job.rank_files.size() ? job.rank_files[rank] : "";
  }
  HVD_TRY_ASSIGN(const std::string name, file_name_of(job, options));
  HVD_TRY_ASSIGN(const std::string folder, folder_of(job, options));
  return folder.empty() ? "" : folder + "/" + name;
}

// ShownFile prints one file, as soon as the job says where it is.
class ShownFile {
 public:
  ShownFile(std::string name, int out, bool may_be_written_elsewhere = false)
      : name_(std::move(name)), out_(out), may_be_written_elsewhere_(may_be_written_elsewhere) {}

  Result<void> look(const std::string& path, FolderWatch& watch, bool tells) {
    if (!path.empty() && (!follower_ || follower_->path() != path)) {
      follower_.emplace(path);
      const std::string folder = path.substr(0, path.rfind('/'));
      is_watched_ = std::filesystem::is_directory(folder) && watch.add(folder).ok();
    } else if (follower_ && !is_watched_) {
      const std::string folder = path.substr(0, path.rfind('/'));
      is_watched_ = std::filesystem::is_directory(folder) && watch.add(folder).ok();
    }
    if (follower_) {
      HVD_TRY(follower_->copy_new(out_));
    }
    // A folder that is made later wakes nobody, and neither does another machine that writes to a shared one.
    if (follower_ && (!is_watched_ || may_be_written_elsewhere_)) {
      watch.look_soon();
    }
    if (tells && !has_found() && !has_told_) {
      has_told_ = true;
      std::cerr << "hvdrun: The file \"" << shown_text(name_) << "\" not found. Waiting for the job to generate it.\n";
    }
    return {};
  }

  [[nodiscard]] bool has_found() const { return follower_ && follower_->has_found(); }

 private:
  const std::string name_;
  const int out_;
  const bool may_be_written_elsewhere_;
  std::optional<FileFollower> follower_;
  bool is_watched_ = false;
  bool has_told_ = false;
};

}  // namespace

Result<int> list_files(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord job, place.job(options.job));
  HVD_TRY_ASSIGN(const std::string folder, folder_of(job, options));
  std::vector<FileRow> files;
  if (!folder.empty()) {
    HVD_TRY_ASSIGN(files, files_in(folder));
  }
  if (options.json) {
    Json all = Json::array();
    for (const FileRow& file : files) {
      all.push_back({{"name", file.name},
                     {"fileType", file.is_directory ? "directory" : "file"},
                     {"contentLength", file.is_directory ? Json() : Json(file.size)},
                     {"lastModified", utc_text(file.modified_ms)},
                     {"path", folder + "/" + file.name}});
    }
    return print_json(all.dump(2, ' ', false, Json::error_handler_t::replace), "");
  }
  std::vector<std::vector<std::string>> rows;
  for (const FileRow& file : files) {
    rows.push_back({file.name, file.is_directory ? "directory" : "file",
                    file.is_directory ? "" : std::to_string(file.size), utc_text(file.modified_ms)});
  }
  std::cout << listing({{"Name"}, {"Type"}, {"Size", true}, {"Modified"}}, rows);
  return 0;
}

// Without --file it is standard output that is shown, which seldom tells why a job has failed.
void name_errors_file(const JobRecord& job, const ServiceOptions& options) {
  const bool is_default = options.file.empty() && options.node.empty() && options.rank < 0 && options.path == ".";
  const std::string errors = default_file(job, true);
  std::error_code failed;
  const auto size = std::filesystem::file_size(job.output + "/" + errors, failed);
  if (is_default && job.state == ExecutionState::kFailed && options.directory == "stdouterr" && !failed && size > 0) {
    std::cerr << "hvdrun: job " << job.name << " has failed; its standard error: hvdrun logs " << job.name << " --file "
              << errors << "\n";
  }
}

Result<int> show_log(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord begun, place.job(options.job));
  HVD_TRY_ASSIGN(const std::string name, options.rank >= 0 ? Result<std::string>("rank " + std::to_string(options.rank))
                                                           : file_name_of(begun, options));
  HVD_TRY_ASSIGN(FolderWatch watch, FolderWatch::on(place.dir.locks()));
  ShownFile shown(name, STDOUT_FILENO, options.directory != "stdouterr");
  const auto look = [&](const JobRecord& job) -> Result<void> {
    HVD_TRY_ASSIGN(const std::string path, file_of(job, options));
    return shown.look(path, watch, options.follow && !has_ended(job.state));
  };
  if (!options.follow) {
    HVD_TRY(look(begun));
  }
  HVD_TRY_ASSIGN(const JobRecord job, options.follow ? await_end(place, begun, watch, look) : Result<JobRecord>(begun));
  if (!shown.has_found()) {
    const std::string state = has_ended(job.state) ? "completed" : state_name(job.state);
    return Error(Code::kNotFound, "The file \"" + shown_text(name) + "\" not found for the " + state + " job; " +
                                      (has_ended(job.state) ? "" : "with -f it is waited for; ") + "hvdrun files " +
                                      job.name + " shows those that there are");
  }
  name_errors_file(job, options);
  return 0;
}

Result<int> attach_to_job(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord begun, place.job(options.job));
  HVD_TRY_ASSIGN(FolderWatch watch, FolderWatch::on(place.dir.locks()));
  std::map<std::string, ShownFile> printed;  // by path
  ShownFile words("hvdrun.log", STDERR_FILENO);
  const auto look = [&](const JobRecord& job) -> Result<void> {
    for (const bool is_error : {false, true}) {
      for (const std::string& path : printed_files(job, is_error)) {
        ShownFile& file = printed.try_emplace(path, path, is_error ? STDERR_FILENO : STDOUT_FILENO).first->second;
        HVD_TRY(file.look(path, watch, false));
      }
    }
    return words.look(place.dir.run_of(job.uuid) + "/hvdrun.log", watch, false);
  };
  HVD_TRY_ASSIGN(const JobRecord job, await_end(place, begun, watch, look));
  return job.status;
}

}  // namespace hvd::cli
