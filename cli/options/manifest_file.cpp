#include "cli/options/manifest_file.h"

#include <chrono>
#include <utility>

#include "cli/options/job_file_settings.h"
#include "cli/options/job_settings.h"
#include "cli/options/options.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/jobfile/job_run.h"

namespace hvd::cli {
namespace {

// Returns what the file has that only hosts with hvdrun's own preparation can do; empty: nothing.
std::string unfit_part(const launch::JobFile& file) {
  return !file.is_native               ? "Batch AI's form, whose folders and mounts pods do not have"
         : !file.mounts.empty()        ? "mounts, which the cluster's volumes replace"
         : !file.preparation.empty()   ? "prepare, which belongs into the image or an init container"
         : !file.secrets.empty()       ? "secrets, which would stand in the manifest for all to read"
         : !file.output_prefix.empty() ? "output, which is what kubectl logs shows"
         : file.is_elastic()           ? "minNodes and maxNodes, since no pod joins a running job"
         : !file.hosts.empty()         ? "hosts, which the cluster chooses"
                                       : "";
}

Result<void> check_file(const launch::JobFile& file) {
  const std::string unfit = unfit_part(file);
  return unfit.empty()
             ? Result<void>()
             : Result<void>(Error(Code::kInvalid, file.file + ": a manifest takes no job file with " + unfit));
}

}  // namespace

Result<std::vector<std::string>> take_job_file_for_pods(Flags& flags) {
  if (!flags.mounts.empty() || !flags.mount_root.empty() || !flags.storage_account.empty() ||
      !flags.container.empty()) {
    return Error(
        Code::kInvalid,
        "--mount, --mount-root, --storage-account-name and --container are for hosts: a pod's image and volumes "
        "are the cluster's");
  }
  const auto loaded = launch::read_job_file(flags.job_file, launch::JobFileOptions{"", own_environment()});
  if (!loaded.ok()) {
    return loaded.error();
  }
  const launch::JobFile& file = loaded.value().job;
  HVD_TRY(check_file(file));
  // The file is laid out on as many hosts, since the pods have no names yet.
  const int nodes = flags.nodes > 0 ? flags.nodes : file.node_count;
  Flags on_hosts = flags;
  on_hosts.launcher.clear();
  on_hosts.engine = "none";
  on_hosts.nodes = 0;
  on_hosts.job_name.clear();
  on_hosts.hosts = "node[1-" + std::to_string(nodes) + "]";
  CliOptions meant;
  HVD_TRY(read_job_file_flags(on_hosts, meant));
  const launch::JobRun& run = *meant.file;
  HVD_TRY_ASSIGN(std::string text, launch::process_text(run, 0));
  flags.nodes = nodes;
  flags.np = run.layout.size();
  flags.image = flags.image.empty() && file.container ? file.container->image : flags.image;
  flags.job_name = flags.job_name.empty() ? file.name : flags.job_name;
  flags.command = {"bash", "-c", std::move(text)};
  flags.job_file.clear();
  std::vector<std::string> words = {"--np=" + std::to_string(flags.np)};
  if (flags.timeout_s == 0 && !flags.has("timeout") && file.timeout > Duration::zero()) {
    words.push_back("--timeout=" +
                    std::to_string(std::chrono::duration_cast<std::chrono::seconds>(file.timeout).count()));
  }
  if (flags.gpus == "local" && !flags.has("gpus") && !file.gpus.empty()) {
    words.push_back("--gpus=" + file.gpus);
  }
  if (flags.timeout_s == 0 && !flags.has("timeout") && file.timeout > Duration::zero()) {
    words.push_back("--setting-of-timeout=" + file.timeout_setting());
  }
  return words;
}

}  // namespace hvd::cli
