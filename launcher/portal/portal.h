// Portal answers a browser that looks at the jobs and clusters of the service: a list, and each job's page, which
// follow what happens. It changes nothing, and answers nobody who does not know its token.
//
// Thread: one at a time. It has no socket of its own: HttpServer brings the requests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "launcher/http/http_message.h"
#include "launcher/portal/portal_page.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// PortalSource is where the portal looks.
struct PortalSource {
  std::function<Result<PortalView>()> view;
  std::function<Result<JobRecord>(std::int64_t number)> job;
  // Returns a job's page as it is now; kNotFound says why there is none.
  std::function<Result<std::string>(const JobRecord& job)> page;
  // Returns a text that changes whenever the page does.
  std::function<std::string(std::int64_t job)> version;
};

class Portal {
 public:
  Portal(PortalSource source, std::string token) : source_(std::move(source)), token_(std::move(token)) {}

  HttpAnswer answer(const HttpRequest& request);
  // Returns those of the topics that have changed since their pages were given out, or since the last call.
  std::set<std::string> news(const std::set<std::string>& topics);
  // The server sends this on the stream of a topic that has news.
  static constexpr const char* kNews = "data: new\n\n";

 private:
  [[nodiscard]] std::string version_of(const std::string& topic) const;
  HttpAnswer stream_of(const std::string& topic, const std::string& query);
  HttpAnswer list() const;
  HttpAnswer job(std::int64_t number) const;

  const PortalSource source_;
  const std::string token_;
  std::map<std::string, std::string> told_;  // the version that the readers of a topic know
};

}  // namespace hvd::launch
