// JobRun: one run of a job file on certain hosts: where its directories are, what each of its processes is started as,
// with which variables, and where what they print is kept. Pure: what only the nodes know comes in as NodeFacts.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/tunable.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/jobfile/job_layout.h"
#include "launcher/jobfile/job_texts.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Where the mounts of a file are on the nodes.
struct MountMap {
  std::vector<std::pair<std::string, std::string>> named;  // --mount NAME=DIR
  std::vector<FileSystem> file_systems;                    // that are mounted for the job; behind those
  std::string root;                                        // --mount-root: of all others, DIR/NAME; empty: none
};

enum class ContainerChoice : std::uint8_t { kAuto, kPodman, kDocker, kApptainer, kNone };

struct JobRunOptions {
  MountMap mounts;
  std::string id;    // of this run: hexadecimal digits that nobody can guess
  std::string uuid;  // in the path of its files
  ContainerChoice container = ContainerChoice::kAuto;
  std::set<std::string> overridden;  // variables that -x sets, which win over the file's
};

struct JobRun {
  JobFile job;  // whose mounts all have directories, or file systems
  JobLayout layout;
  JobRunOptions options;
  std::string root;             // on each node, made for the run and removed after it
  std::string segment;          // of the paths of output
  std::string output;           // AZ_BATCHAI_STDOUTERR_DIR, as the nodes see it; empty: no files are kept
  std::string kept_at;          // the same as this machine sees it, if it has the mounts too
  std::string shared_in_mount;  // empty: no mount is known to be the same on all nodes

  [[nodiscard]] std::string mount_root() const { return root + "/mounts"; }
  [[nodiscard]] std::string cluster_mount_root() const { return root + "/cluster"; }
  // Where a process finds it.
  [[nodiscard]] std::string mount_point(const Mount& mount) const {
    return (mount.is_of_cluster ? cluster_mount_root() : mount_root()) + "/" + mount.name;
  }
  [[nodiscard]] std::string temp() const { return root + "/temp"; }
  // AZ_BATCHAI_SHARED_JOB_TEMP, and where it leads: a folder that all nodes have, where the output is in a mount.
  [[nodiscard]] std::string shared() const { return root + "/shared"; }
  [[nodiscard]] std::string shared_at() const { return shared_in_mount.empty() ? shared() : shared_in_mount; }
  [[nodiscard]] std::string host_file() const { return root + "/hostfile"; }
};

// Finds a directory for each mount, or names all that have none; and the directories of the run.
Result<JobRun> make_job_run(JobFile job, JobLayout layout, JobRunOptions options);

// Where a directory that the file names is for this machine, if it has the mounts too. nullopt: that is known on the
// nodes alone, or it ends with the run.
std::optional<std::string> directory_here(const JobRun& run, const std::string& text);

// What is known of each node when its agent has answered.
struct JobNodeFacts {
  std::string address;
  std::string port;  // the first of those for the processes there
  int gpus = 0;
};

// AZ_BATCHAI_* and what belongs to them, for what runs on a node, and for one of the processes.
Settings node_variables(const JobRun& run, const std::vector<JobNodeFacts>& facts, int node);
Settings process_variables(const JobRun& run, const std::vector<JobNodeFacts>& facts, int rank);

// Shell texts for bash: what a node does first (folders, links to the mounts, jobPreparation), what a process is, and
// what a node does last. What they run in other shells goes to `texts`, as they do themselves then (JobTexts::add).
inline constexpr int kSetUpFailed = 242;  // its exit code when it is not jobPreparation that failed
Result<std::string> set_up_script(const JobRun& run, const std::vector<JobNodeFacts>& facts, int node, JobTexts& texts);
Result<std::string> process_script(const JobRun& run, int rank, JobTexts& texts);
// The same without the container that it runs in.
Result<std::string> process_text(const JobRun& run, int rank);
// Each line that it prints says what could not be removed, and why; its exit code is 0 all the same.
std::string clean_up_script(const JobRun& run);
// Before it, on one of the nodes: the same for what stands in a mount alone, if anything does.
std::string clean_mounts_script(const JobRun& run, JobTexts& texts);
bool has_mounts_to_clean(const JobRun& run);

// Refuses, by its place in the file, what the kernel would refuse to hand to a program.
Result<void> check_word_sizes(const JobRun& run);

// What of the file only a shell expands, as "export NAME=...;" lines.
std::string exported_variables(const JobRun& run);

// Names of the files below kept_at: of what rank N prints, of what a node's preparation prints, of a node's log.
std::string process_file(const JobRun& run, int rank, bool is_error);
std::string preparation_file(const JobRun& run, int node, bool is_error);
std::string node_log_file(const JobRun& run, int node);

}  // namespace hvd::launch
