#include "launcher/portal/portal_page.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "launcher/page/page_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>hvdrun: jobs and clusters</title><style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2126;--dim:#5a6570;--line:#d7dde3;--ok:#2f6f9f;--run:#3f7d3f;--bad:#c02a1d}
@media(prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--dim:#9aa5b1;--line:#333b44;--ok:#5b9bd0;--run:#7cc07c;
--bad:#f0705f}}
body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.25rem}h2{font-size:1.05rem;margin:1.6rem 0 .5rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem 1rem .25rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th.number,td.number{text-align:right;padding-right:1.6rem}.dim{color:var(--dim)}a{color:var(--ok)}
.failed{color:var(--bad);font-weight:600}.running{color:var(--run);font-weight:600}
</style></head><body>
)";

// Shown while the stream is gone, because a page that has silently stopped would be taken for the present.
constexpr std::string_view kSilent =
    R"(<p id="silent" role="status" hidden style="color:var(--bad);font-weight:600">The portal does not answer, so this page
is not followed: it shows what was known until then. Where hvdrun report --serve has ended, start it again; it gives a new
address.</p>
)";

// Loads the page anew when the stream has news. Of an end of the stream the browser makes a new one. A page that nobody
// sees has none, since a browser has only six connections for all pages of one address.
std::string follow_script(const std::string& stream, const std::string& version) {
  return R"(<script>var stream=null;function show(isSilent){document.getElementById("silent").hidden=!isSilent}
function follow(){if(stream)stream.close();
stream=document.hidden?null:new EventSource(")" +
         stream + "?v=" + version + R"(");if(!stream)return;stream.onmessage=function(){location.reload()};
stream.onopen=function(){show(false)};stream.onerror=function(){show(true)}}
document.addEventListener("visibilitychange",follow);follow()</script>
)";
}

std::string cell(const std::string& text, std::string_view kind = "") {
  return (kind.empty() ? "<td>" : "<td class=\"" + std::string(kind) + "\">") + escaped(text) + "</td>";
}

// A name with "#" in front is that of a column of numbers.
std::string heads(const std::vector<std::string>& names) {
  std::string row = "<div class=\"scroll\"><table><tr>";
  for (const std::string& name : names) {
    const bool is_number = name.starts_with('#');
    row += (is_number ? "<th class=\"number\">" : "<th>") + name.substr(is_number ? 1 : 0) + "</th>";
  }
  return row + "</tr>\n";
}

// "2018-07-18 22:41:28"
std::string moment(std::int64_t ms) {
  std::string text = utc_text(ms).substr(0, 19);
  std::replace(text.begin(), text.end(), 'T', ' ');
  return text;
}

std::string job_row(const JobRecord& job) {
  const std::string state = listed_state(job);
  const std::string kind = job.state == ExecutionState::kFailed && !was_stopped(job) ? "failed"
                           : job.state == ExecutionState::kRunning                   ? "running"
                                                                                     : "";
  const std::string number = job.engine_job.empty() ? std::to_string(job.id) : job.engine_job;
  const std::string name =
      job.engine_job.empty() ? "<td><a href=\"jobs/" + std::to_string(job.id) + "\">" + escaped(job.name) + "</a></td>"
                             : cell(job.name);
  return "<tr>" + cell(number) + name + cell(state, kind) +
         cell(job.exit_code ? std::to_string(*job.exit_code) : "", "number") + cell(job.cluster) +
         cell(listed_nodes(job), "number") + cell(job.tool) + cell(moment(job.created_ms)) +
         cell(moment(job.started_ms)) + cell(moment(job.ended_ms)) + "</tr>\n";
}

std::string state_words(const JobRecord& job) {
  switch (job.state) {
    case ExecutionState::kQueued:
      return "waits for its nodes";
    case ExecutionState::kRunning:
      return "runs";
    case ExecutionState::kTerminating:
      return "is being stopped";
    case ExecutionState::kSucceeded:
      return "has succeeded";
    case ExecutionState::kFailed:
      break;
  }
  return was_stopped(job) ? "was stopped"
                          : "has failed" + (job.exit_code ? " with exit code " + std::to_string(*job.exit_code) : "");
}

// "Job 3, train, on cluster lab has failed. The supervisor of the job was killed while its ranks ran."
std::string job_head(const JobRecord& job) {
  std::string text = "<p><b>Job " + std::to_string(job.id) + ", " + escaped(job.name) + "</b>, on cluster " +
                     escaped(job.cluster) + ", " + state_words(job) + ".";
  if (job.state == ExecutionState::kFailed && !was_stopped(job) && !job.exit_code && !job.error.message.empty()) {
    text += " " + escaped(job.error.message) + ".";
    text += job.error.code == kLostError && job.phase == Phase::kStarted ? " What stands below was written before that."
                                                                         : "";
  }
  text += "<br><span class=\"dim\">Submitted " + moment(job.created_ms) + " UTC";
  text += job.started_ms == 0 ? "" : ", began " + moment(job.started_ms);
  text += job.ended_ms == 0 ? "" : ", ended " + moment(job.ended_ms);
  return text + "</span></p>\n";
}

constexpr std::string_view kBody = "<body>";

// What the page of a running job says of it (page/job_page.cpp), and what it says when nobody is left to write it
// again. The words stand before all that the job itself has said.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kWordsOfLost = {
    {{"<title>Running: ", "<title>Lost: "},
     {"<span class=\"badge running\">Running</span>", "<span class=\"badge failed\">Lost while it ran</span>"}}};

// Puts the way back, and what else stands above, into a page, and what follows its stream.
std::string with_head(std::string page, const std::string& head, std::int64_t job, const std::string& version) {
  const std::string above = "<p><a href=\"../\">All jobs</a></p>\n" + std::string(kSilent) + head;
  const std::string script = follow_script(std::to_string(job) + "/events", version);
  if (const std::size_t end = page.rfind("</body>"); end != std::string::npos) {
    page.insert(end, script);
  } else {
    page += script;
  }
  const std::size_t begin = page.find(kBody);
  return begin == std::string::npos ? above + page : page.insert(begin + kBody.size(), above);
}

// Pages stand beside each other in a browser, which shows their titles.
void set_title(std::string& page, const std::string& title) {
  constexpr std::string_view kBegin = "<title>";
  const std::size_t begin = page.find(kBegin);
  const std::size_t end = begin == std::string::npos ? begin : page.find("</title>", begin);
  if (end != std::string::npos) {
    page.replace(begin + kBegin.size(), end - begin - kBegin.size(), escaped(title));
  }
}

std::string cluster_row(const ClusterRecord& record) {
  const auto count = [&record](ClusterNodeState state) {
    return std::to_string(std::count_if(record.nodes.begin(), record.nodes.end(), [state](const NodeRecord& node) {
      return node.state == state && !(state == ClusterNodeState::kIdle && node.is_drained);
    }));
  };
  const auto drained =
      std::count_if(record.nodes.begin(), record.nodes.end(), [](const NodeRecord& node) { return node.is_drained; });
  return "<tr>" + cell(record.cluster.name) + cell(std::to_string(record.nodes.size()), "number") +
         cell(count(ClusterNodeState::kIdle), "number") + cell(count(ClusterNodeState::kPreparing), "number") +
         cell(count(ClusterNodeState::kRunning), "number") + cell(count(ClusterNodeState::kLeaving), "number") +
         cell(count(ClusterNodeState::kUnusable), "number") + cell(std::to_string(drained), "number") + "</tr>\n";
}

}  // namespace

std::string portal_list(const PortalView& view) {
  std::string text = "<h1>Jobs</h1>\n";
  if (view.jobs.empty()) {
    text += "<p class=\"dim\">No job has been submitted; hvdrun submit -f FILE does that.</p>\n";
  } else {
    text +=
        heads({"Id", "Name", "State", "#Exit code", "Cluster", "#Nodes", "Tool", "Submitted (UTC)", "Began", "Ended"});
    for (const JobRecord& job : view.jobs) {
      text += job_row(job);
    }
    text += "</table></div>\n";
    if (view.unlisted > 0) {
      text += "<p class=\"dim\">" + counted(static_cast<std::size_t>(view.unlisted), "older job") + " that " +
              (view.unlisted == 1 ? "has" : "have") + " ended: hvdrun ps --all shows all.</p>\n";
    }
  }
  text += "<h2>Clusters</h2>\n";
  if (view.clusters.empty()) {
    return text + "<p class=\"dim\">There is no cluster; hvdrun cluster add NAME makes one.</p>\n";
  }
  text += heads({"Name", "#Nodes", "#Idle", "#Preparing", "#Running", "#Leaving", "#Unusable", "#Drained"});
  for (const ClusterRecord& cluster : view.clusters) {
    text += cluster_row(cluster);
  }
  return text + "</table></div>\n";
}

std::string portal_page(const std::string& list, const std::string& version) {
  return std::string(kHead) + std::string(kSilent) + list + follow_script("events", version) + "</body></html>\n";
}

std::string page_of_lost(std::string page) {
  for (const auto& [written, now] : kWordsOfLost) {
    if (const std::size_t at = page.find(written); at != std::string::npos) {
      page.replace(at, written.size(), now);
    }
  }
  return page;
}

std::string followed_page(std::string page, const JobRecord& job, const std::string& version) {
  if (job.error.code == kLostError) {
    page = page_of_lost(std::move(page));
  }
  set_title(page, job.name + ": " + listed_state(job));
  return with_head(std::move(page), job_head(job), job.id, version);
}

std::string unknown_page(const std::string& why, std::int64_t job, const std::string& version) {
  return with_head(missing_page(why), "", job, version);
}

std::string failed_page(const std::string& why) {
  return portal_page("<p>" + escaped(why) + "</p>\n", kFailedVersion);
}

std::string missing_page(const std::string& why) {
  return std::string(kHead) + "<p>" + escaped(why) + "</p>\n</body></html>\n";
}

}  // namespace hvd::launch
