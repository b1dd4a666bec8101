// These are the commands of the service, each in the file of its kind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/options/service_options.h"
#include "cli/service_place.h"
#include "runtime/base/result.h"

namespace hvd::cli {

Result<int> add_cluster(ServicePlace& place, const ServiceOptions& options);
Result<int> show_cluster(ServicePlace& place, const ServiceOptions& options);
Result<int> list_clusters(ServicePlace& place, const ServiceOptions& options);
Result<int> drain_cluster(ServicePlace& place, const ServiceOptions& options);
Result<int> remove_cluster(ServicePlace& place, const ServiceOptions& options);

// Returns a line for each node that no job gets for a while, because it could not be reached.
std::vector<std::string> unusable_lines(const launch::ClusterRecord& cluster);

Result<int> list_jobs(ServicePlace& place, const ServiceOptions& options);
Result<int> show_job(ServicePlace& place, const ServiceOptions& options);
// Waits for all of options.jobs; returns the code of the first of them that has failed, or 0.
Result<int> wait_for_jobs(ServicePlace& place, const ServiceOptions& options);
Result<int> stop_job(ServicePlace& place, const ServiceOptions& options);
Result<int> remove_job(ServicePlace& place, const ServiceOptions& options);
Result<int> report_job(ServicePlace& place, const ServiceOptions& options);
// Shows jobs and clusters to a browser until a signal ends it.
Result<int> serve_reports(ServicePlace& place, const ServiceOptions& options);
Result<int> list_nodes(ServicePlace& place, const ServiceOptions& options);
Result<int> run_on_node(ServicePlace& place, const ServiceOptions& options);

Result<int> list_files(ServicePlace& place, const ServiceOptions& options);
Result<int> show_log(ServicePlace& place, const ServiceOptions& options);
Result<int> attach_to_job(ServicePlace& place, const ServiceOptions& options);

// Runs a job's supervisor from its beginning to its end.
Result<int> supervise(const ServiceOptions& options);

// Returns when the job has ended; `look` is called after each change and at the end. While it waits it also finds a
// dead supervisor.
Result<launch::JobRecord> await_end(ServicePlace& place, const launch::JobRecord& begun, launch::FolderWatch& watch,
                                    const std::function<Result<void>(const launch::JobRecord&)>& look);

// Prints a JSON object, or one field of it, as `show` does. An error names the key that is not there.
Result<int> print_json(const std::string& json, const std::string& field);

// Tells what was submitted: where the job waits and how to follow it, or its record as JSON.
void print_submitted(const launch::JobRecord& job, bool as_json);

}  // namespace hvd::cli
