// The portal's own pages: the list of jobs and clusters, and what a job's page needs to follow the job. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/service/job_store.h"

namespace hvd::launch {

// PortalView is what the list shows.
struct PortalView {
  std::vector<ClusterRecord> clusters;
  std::vector<JobRecord> jobs;  // in the order of the list
  std::int64_t unlisted = 0;    // older ones that have ended
};

// Returns the part of the list that changes, as HTML.
std::string portal_list(const PortalView& view);
// Returns the whole page. It loads itself again when the stream says that this version is not the present one.
std::string portal_page(const std::string& list, const std::string& version);
// Returns the page of a job that was lost while it ran, and with it all who would have gone on with the page: its badge
// and title say so.
std::string page_of_lost(std::string page);
// Does the same as portal_page() for the page of a job, which stands at jobs/ID, and says above it what the service
// knows of the job. The page itself tells of the ranks only, and nobody goes on with it when the job's supervisor has
// died.
std::string followed_page(std::string page, const JobRecord& job, const std::string& version);
// The version of a list that could not be read. Its page follows the list like any other.
inline constexpr const char* kFailedVersion = "failed";
std::string failed_page(const std::string& why);
// Returns the page of a job that has none, or of which nothing is known.
std::string missing_page(const std::string& why);
// Returns what stands at jobs/ID where there is no such job: it may come.
std::string unknown_page(const std::string& why, std::int64_t job, const std::string& version);

}  // namespace hvd::launch
