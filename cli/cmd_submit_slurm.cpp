#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>

#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/options/job_file_settings.h"
#include "cli/options/job_settings.h"
#include "cli/service_commands.h"
#include "cli/service_place.h"
#include "launcher/engines/slurm_batch.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/process/output_of.h"
#include "launcher/process/own_process.h"
#include "runtime/base/replace_file.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

constexpr auto kSubmitTime = std::chrono::minutes(2);
// A plan shows this in place of the folder that submit makes.
constexpr const char* kPlannedFolder = "<folder-of-the-job>";

// BatchJob is a job for Slurm as far as it is known before its folder is made.
struct BatchJob {
  SlurmBatch batch;
  JobRecord record;
  std::string text;  // of its job file; empty: it has none
  Notices notices;
};

// Reads the job file as if it had its nodes, so that what is wrong with it is said now.
Result<void> apply_file(const CliOptions& options, BatchJob& job) {
  HVD_TRY_ASSIGN(job.text, read_job_text(options.flags.job_file));
  HVD_TRY_ASSIGN(const JobFileOptions reading, reading_options(options.flags, own_environment()));
  const auto file = parse_job_file(job.text, options.flags.job_file, reading);
  if (!file.ok()) {
    return file.error();
  }
  Flags flags = options.flags;
  const int nodes = flags.nodes > 0 ? flags.nodes : file.value().job.node_count;
  flags.engine = "none";
  flags.nodes = 0;
  flags.requeue_on_notice = false;  // it is for the job that is not there yet
  flags.job_text = job.text;
  flags.hosts = "node[1-" + std::to_string(nodes) + "]";
  CliOptions meant = options;
  HVD_TRY(read_job_file_flags(flags, meant));
  job.batch.nodes = nodes;
  job.batch.ranks = meant.file->layout.size();
  job.batch.is_elastic = meant.file->job.is_elastic();
  job.record.tool = tool_type(meant.file->job.tool.kind);
  job.record.properties = properties_json(*meant.file);
  job.record.name = options.flags.job_name.empty() ? meant.file->job.name : options.flags.job_name;
  job.notices.insert(job.notices.end(), meant.notices.begin(), meant.notices.end());
  if (!meant.file->job.hosts.empty()) {
    job.notices.push_back("the job file's hosts have no effect: Slurm says on which nodes the job runs");
  }
  if (meant.file->job.priority != "normal") {
    job.notices.push_back("the job file's priority has no effect on Slurm; as in --sbatch=--qos=high");
  }
  return {};
}

Result<BatchJob> job_of(const CliOptions& options) {
  const Flags& flags = options.flags;
  BatchJob job;
  job.record.cluster = "slurm";
  job.record.experiment = "default";
  job.record.properties = "{}";
  job.record.name = flags.job_name.empty() ? "hvdrun" : flags.job_name;
  job.batch.nodes = flags.nodes;
  job.batch.ranks = flags.np;
  if (!flags.job_file.empty()) {
    HVD_TRY(apply_file(options, job));
  }
  if (!is_job_name(job.record.name) || job.record.name.front() == '-' ||
      job.record.name.find_first_not_of("0123456789") == std::string::npos) {
    return Error(Code::kInvalid, "--name " + shown_text(job.record.name) +
                                     ": expected letters, digits, - and _, up to 64, and not digits alone");
  }
  job.record.node_count = std::max(job.batch.nodes, 1);
  job.record.process_count = std::max(job.batch.ranks, 1);
  job.batch.grace = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.grace_s));
  job.batch.is_elastic = job.batch.is_elastic || flags.asks_for_elastic();
  job.batch.may_begin_anew = job.batch.is_elastic || flags.requeue_on_notice;
  job.batch.options = flags.sbatch;
  HVD_TRY_ASSIGN(job.batch.cwd, working_directory(own_environment()));
  return job;
}

// Returns where the job's folder has the job file: under its own name, which messages show. A file that is called as
// one of the job's own has a folder for itself.
std::string kept_job_file(const std::string& folder, const std::string& file) {
  constexpr std::array<std::string_view, 3> kOwn = {"batch.sh", "stdout.txt", "status"};
  const std::string name = std::filesystem::path(file).filename().string();
  const bool is_taken = std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
  return folder + (is_taken ? "/file/" : "/") + name;
}

Result<std::string> script_of(const CliOptions& options, BatchJob& job, const std::string& folder) {
  HVD_TRY_ASSIGN(const std::string self, own_program());
  job.batch.name = job.record.name;
  job.batch.output = folder + "/stdout.txt";
  job.batch.command = {self, "--status-file=" + folder + "/status"};
  if (!job.text.empty()) {
    job.batch.command.push_back("--file=" + kept_job_file(folder, options.flags.job_file));
  }
  job.batch.command.insert(job.batch.command.end(), options.batch_words->begin(), options.batch_words->end());
  return batch_script(job.batch);
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? Result<void>() : Result<void>(Error(Code::kSystem, "cannot write " + path));
}

// Fills the job's folder. Its name and its folder are set.
Result<void> fill_folder(const CliOptions& options, BatchJob& job) {
  const std::string& folder = job.record.output;
  HVD_TRY_ASSIGN(const std::string script, script_of(options, job, folder));
  HVD_TRY(write_file(folder + "/batch.sh", script));
  if (job.text.empty()) {
    return {};
  }
  const std::string file = kept_job_file(folder, options.flags.job_file);
  std::error_code failed;  // then the file cannot be written, which is told
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), failed);
  return write_file(file, job.text);
}

// Submits the job whose folder and record are there. An error that leaves Slurm with the job says so, and both stay.
struct Submission {
  Result<void> outcome;
  bool is_refused = false;
};
Submission submit(ServicePlace& place, BatchJob& job) {
  const auto answer = output_of({"sbatch", "--parsable", job.record.output + "/batch.sh"}, own_environment(),
                                Deadline::after(kSubmitTime));
  // Also sbatch itself may have lost the answer: "Socket timed out on send/recv operation".
  const auto is_lost = [](const Error& why) {
    return why.code() == Code::kTimeout || why.code() == Code::kCancelled ||
           (why.code() == Code::kSystem && why.message().find("timed out") != std::string::npos);
  };
  if (!answer.ok() && is_lost(answer.error())) {
    return {answer.error().with_context("Slurm may have taken the job " + job.record.name +
                                        " all the same, which squeue shows"),
            false};
  }
  if (!answer.ok()) {
    return {answer.error().with_context("Slurm does not take the job"), true};
  }
  const auto number = submitted_number(answer.value());
  if (!number.ok()) {
    return {number.error(), false};
  }
  if (const auto kept = place.engine_jobs.set_number(job.record, number.value()); !kept.ok()) {
    return {kept.error().with_context("Slurm has taken the job as number " + number.value() +
                                      ", which cannot be recorded; scancel " + number.value() + " ends it"),
            false};
  }
  return {};
}

}  // namespace

Result<int> plan_on_slurm(const CliOptions& options) {
  HVD_TRY_ASSIGN(BatchJob job, job_of(options));
  HVD_TRY_ASSIGN(const std::string script, script_of(options, job, kPlannedFolder));
  std::cout << script;
  return 0;
}

Result<int> submit_to_slurm(const CliOptions& options) {
  HVD_TRY_ASSIGN(BatchJob job, job_of(options));
  HVD_TRY_ASSIGN(ServicePlace place, ServicePlace::open());
  for (const std::string& notice : job.notices) {
    std::cerr << "hvdrun: " << notice << "\n";
  }
  std::string folder = place.dir.run_of("slurm-XXXXXX");
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), failed);
  if (::mkdtemp(folder.data()) == nullptr) {
    return Error::from_errno("cannot make the job's folder " + folder);
  }
  job.record.uuid = std::filesystem::path(folder).filename().string();
  job.record.output = folder;
  job.record.created_ms = job.record.changed_ms = now_ms();
  // The record comes first: no job is Slurm's that nobody here knows of.
  Result<void> ready = place.engine_jobs.add(job.record, "slurm", !options.flags.job_name.empty());
  const bool has_record = ready.ok();
  if (ready.ok()) {
    ready = fill_folder(options, job);
  }
  const Submission submitted = ready.ok() ? submit(place, job) : Submission{ready, true};
  if (submitted.is_refused) {
    static_cast<void>(has_record ? place.engine_jobs.remove(job.record) : Result<void>());
    static_cast<void>(place.dir.remove_run(job.record.uuid));
  }
  HVD_TRY(submitted.outcome);
  print_submitted(job.record, options.json);
  return 0;
}

void forget_status(const std::string& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

void write_status(const std::string& file, int code) {
  // Without it there is still Slurm's own word for the end.
  static_cast<void>(replace_file(file, std::to_string(code) + "\n"));
}

}  // namespace hvd::cli
