// JobRun is one run of a job file on certain hosts. It says where its directories are, how each of its processes is
// started, with which variables, and where its output is kept. Pure: facts that only the nodes know come in as
// JobNodeFacts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/tunable.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/jobfile/job_layout.h"
#include "launcher/jobfile/job_texts.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// MountMap says where the mounts of a file are on the nodes.
struct MountMap {
  std::vector<std::pair<std::string, std::string>> named;  // --mount NAME=DIR
  std::vector<FileSystem> file_systems;                    // mounted for the job; searched after `named`
  std::string root;                                        // --mount-root: all others are DIR/NAME; empty: none
};

enum class ContainerChoice : std::uint8_t { kAuto, kPodman, kDocker, kApptainer, kNone };

struct JobRunOptions {
  MountMap mounts;
  std::string id;    // of this run: random hexadecimal digits
  std::string uuid;  // part of the paths of its files
  std::string cwd;   // hvdrun's working directory
  ContainerChoice container = ContainerChoice::kAuto;
  std::map<std::string, std::string, std::less<>> overridden;  // variables that -x sets, which win over the file's
  bool is_synced = false;                                      // the nodes get hvdrun's working directory (--sync)
};

struct JobRun {
  JobFile job;  // each of its mounts has a directory or a file system
  JobLayout layout;
  JobRunOptions options;
  std::string root;             // on each node; created for the run and removed after it
  std::string segment;          // part of the paths of output
  std::string output;           // AZ_BATCHAI_STDOUTERR_DIR, as the nodes see it; empty: no files are kept
  std::string kept_at;          // the same as this machine sees it, if it has the mounts too
  std::string shared_in_mount;  // empty: no mount is known to be the same on all nodes

  // True where the job's processes start in hvdrun's working directory, or in the copy of it; else they do in temp().
  [[nodiscard]] bool starts_in_folder() const { return job.is_native || options.is_synced; }
  [[nodiscard]] std::string mount_root() const { return root + "/mounts"; }
  [[nodiscard]] std::string cluster_mount_root() const { return root + "/cluster"; }
  // Returns the path at which a process finds the mount.
  [[nodiscard]] std::string mount_point(const Mount& mount) const {
    return (mount.is_of_cluster ? cluster_mount_root() : mount_root()) + "/" + mount.name;
  }
  [[nodiscard]] std::string temp() const { return root + "/temp"; }
  // Returns AZ_BATCHAI_SHARED_JOB_TEMP; shared_at() is what it links to: a folder that all nodes share, where the
  // output is in a mount.
  [[nodiscard]] std::string shared() const { return root + "/shared"; }
  [[nodiscard]] std::string shared_at() const { return shared_in_mount.empty() ? shared() : shared_in_mount; }
  [[nodiscard]] std::string host_file() const { return root + "/hostfile"; }
};

// Finds a directory for each mount, or names all mounts that have none. Then chooses the directories of the run.
Result<JobRun> make_job_run(JobFile job, JobLayout layout, JobRunOptions options);

// Returns where this machine sees a directory that the file names, if it has the mounts too. nullopt: only the nodes
// know it, or it ends with the run.
std::optional<std::string> directory_here(const JobRun& run, const std::string& text);

// Returns where a node that is this machine has the script that the ranks run, which may be named below `cwd` too.
// nullopt: only a shell or a container knows, or there is no script.
std::optional<std::string> script_here(const JobRun& run, const std::string& cwd);

// JobNodeFacts is what is known of a node once its agent has answered.
struct JobNodeFacts {
  std::string address;
  std::string port;  // the first of the ports for the processes there
  int gpus = 0;
};

// These return AZ_BATCHAI_* and related variables, for what runs on a node and for one of the processes.
Settings node_variables(const JobRun& run, const std::vector<JobNodeFacts>& facts, int node);
Settings process_variables(const JobRun& run, const std::vector<JobNodeFacts>& facts, int rank);

// These return shell texts for bash: what a node runs first (folders, links to the mounts, jobPreparation), what a
// process runs, and what a node runs last. Texts for other shells go to `texts`, and they go there themselves in the
// end (JobTexts::add).
inline constexpr int kSetUpFailed = 242;  // the exit code when something other than jobPreparation failed
Result<std::string> set_up_script(const JobRun& run, const std::vector<JobNodeFacts>& facts, int node, JobTexts& texts);
Result<std::string> process_script(const JobRun& run, int rank, JobTexts& texts);
// Returns what a process of a node runs that joins the running job: the first of them sets the node up, the others wait
// for it. Of nodes that are not there `facts` has no address.
Result<std::string> joining_script(const JobRun& run, const std::vector<JobNodeFacts>& facts, int rank,
                                   JobTexts& texts);
// Returns the process's text without the container that it runs in.
Result<std::string> process_text(const JobRun& run, int rank);
// Each line that the script prints says what could not be removed, and why; its exit code is 0 even then.
std::string clean_up_script(const JobRun& run);
// Runs before clean_up_script, on one of the nodes, and removes what exists only in a mount.
std::string clean_mounts_script(const JobRun& run, JobTexts& texts);
bool has_mounts_to_clean(const JobRun& run);

// Refuses words that the kernel would refuse to pass to a program; the error names their place in the file.
Result<void> check_word_sizes(const JobRun& run);

// Returns "export NAME=...;" lines for values of the file that only a shell can expand.
std::string exported_variables(const JobRun& run);

// These name files below kept_at: the output of rank N, the output of a node's preparation, a node's log.
std::string process_file(const JobRun& run, int rank, bool is_error);
std::string preparation_file(const JobRun& run, int node, bool is_error);
std::string node_log_file(const JobRun& run, int node);

}  // namespace hvd::launch
