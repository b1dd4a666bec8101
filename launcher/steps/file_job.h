// run_file_job() runs the job that a file describes (launcher/jobfile), from its hosts to its end: it prepares the
// nodes, runs the processes, and cleans up on the nodes whatever became of the job.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/job/unreached.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/offers/host_source.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct JobStep;

// FileJobObserver is told how a job file's job goes on. It may refuse: an error ends the job before the step that it
// reports.
class FileJobObserver {
 public:
  virtual ~FileJobObserver() = default;
  // `directory` holds the job's files; empty: none are kept. It is told again when nodes have joined.
  virtual Result<void> on_output(const std::string& directory, const JobRun& run) = 0;
  // Its nodes are about to be reached, set up and prepared.
  virtual Result<void> on_preparing() = 0;
  // What is known of the nodes; of a node that is not there any more it has no address.
  virtual void on_nodes(const JobLayout& layout, const std::vector<JobNodeFacts>& facts) = 0;
  // The job ends before any of its processes has begun, because these hosts could not be reached, or were lost.
  virtual void on_unreached(const Unreached& unreached) = 0;
  // A signal that this process got ends the job.
  virtual void on_interrupted() = 0;
  // The end of one of its processes, or of its preparation on a node, ends the job, whose exit code it gives.
  virtual void on_failed_rank() = 0;
  // The job ends, and these hosts were lost: what it left there may end some time later.
  virtual void on_lost(const std::vector<std::string>& hosts) = 0;
  // The job's page is kept among hvdrun's own files, which only the user may read.
  [[nodiscard]] virtual bool keeps_page_private() const { return false; }
  // Its processes are about to be started.
  virtual Result<void> on_ranks() = 0;
  // Returns what says which hosts join the running job and leave it; null: what the command line says.
  virtual std::unique_ptr<HostSource> host_source(EventLoop& loop) = 0;

 protected:
  FileJobObserver() = default;
  FileJobObserver(const FileJobObserver&) = default;
  FileJobObserver& operator=(const FileJobObserver&) = default;
};

struct FileJobSettings {
  JobSpec job;  // what the flags say
  JobRun run;
  std::vector<std::string> notices;  // warnings of what the settings were made from
  Result<std::string> state_root;    // the folder of hvdrun's own files, for output that has no other place
};

// Returns hvdrun's exit code. `observer` may be null.
Result<int> run_file_job(FileJobSettings settings, FileJobObserver* observer);
// Does the same, but `run` runs each step.
using RunStep = std::function<Result<int>(const JobStep&)>;
Result<int> run_file_job(FileJobSettings settings, FileJobObserver* observer, RunStep run);

}  // namespace hvd::launch
