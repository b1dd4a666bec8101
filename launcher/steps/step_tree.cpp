#include "launcher/steps/step_tree.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "launcher/logs/rank_files.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

// What hvdrun writes into the folder of --output-filename. Where that folder is the user's own, as with
// `--output-filename .`, it also holds the program, so only what is there of hvdrun's stays here.
std::vector<std::string> outputs_in(const std::string& folder) {
  std::vector<std::string> found{folder + "/" + kStacksFile};
  std::error_code failed;
  for (std::filesystem::directory_iterator item(folder, failed), end; !failed && item != end; item.increment(failed)) {
    if (is_rank_folder(item->path().filename().string())) {
      found.push_back(folder + "/" + item->path().filename().string());
    }
  }
  return found;
}

}  // namespace

Result<std::optional<Tree>> tree_of(const JobSpec& job) {
  if (job.sync_dir.empty()) {
    return std::optional<Tree>();
  }
  const auto absolute = [&job](const std::string& path) {
    return path.empty() || path.front() == '/' ? path : job.cwd + "/" + path;
  };
  // As the scan writes them: "./logs/" is "logs", and folders may be links.
  const auto real = [&absolute](const std::string& path) {
    std::error_code failed;
    const auto whole = std::filesystem::weakly_canonical(absolute(path), failed);
    std::string text = failed ? absolute(path) : whole.string();
    while (text.size() > 1 && text.back() == '/') {
      text.pop_back();
    }
    return text;
  };
  ScanOptions options;
  options.environment = job.environment;
  const std::string cache = value_in(job.environment, "XDG_CACHE_HOME");
  const std::string home = value_in(job.environment, "HOME");
  // The folders of other jobs are in the cache.
  const std::string own_cache = !cache.empty() ? cache + "/hvdrun" : home.empty() ? "" : home + "/.cache/hvdrun";
  for (const std::string& own : {job.kept_dir, job.page, job.spans, job.metrics_file, job.join_file, own_cache}) {
    if (!own.empty()) {
      options.left_out.push_back(real(own));
    }
  }
  if (!job.output_dir.empty()) {
    const std::string output = real(job.output_dir);
    const bool is_users = lies_in(real(job.sync_dir), output) || lies_in(real(job.cwd), output);
    const std::vector<std::string> own = is_users ? outputs_in(output) : std::vector<std::string>{output};
    options.left_out.insert(options.left_out.end(), own.begin(), own.end());
  }
  HVD_TRY_ASSIGN(Tree tree, scan_tree(absolute(job.sync_dir), options));
  return std::optional(std::move(tree));
}

bool would_bring(const Tree& tree, const std::string& cwd, const std::string& name) {
  const auto way = way_within(tree, cwd);
  if (!way) {
    return false;
  }
  // Not resolved: a link is brought as a link, and what it leads to may be on every host.
  const std::string path = std::filesystem::path(tree.root + *way + "/" + name).lexically_normal().string();
  return std::any_of(tree.entries.begin(), tree.entries.end(), [&](const TreeEntry& entry) {
    const std::string place = tree.root + "/" + entry.path;
    return place == path || (entry.kind == TreeEntry::Kind::kLink && path.starts_with(place + "/"));
  });
}

}  // namespace hvd::launch
