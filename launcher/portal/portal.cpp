#include "launcher/portal/portal.h"

#include <functional>
#include <optional>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr const char* kList = "list";  // the topic; those of jobs are their numbers
// Pages need nothing but themselves and the portal, and may be kept nowhere.
constexpr const char* kHeaders =
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

HttpAnswer html(std::string body) {
  HttpAnswer answer;
  answer.type = "text/html; charset=utf-8";
  answer.headers = kHeaders;
  answer.body = std::move(body);
  return answer;
}

// Returns the number in "jobs/12" or "jobs/12/events", of which `rest` is what follows the number.
std::optional<std::int64_t> job_in(std::string_view path, std::string_view& rest) {
  constexpr std::string_view kJobs = "jobs/";
  if (!path.starts_with(kJobs)) {
    return std::nullopt;
  }
  path.remove_prefix(kJobs.size());
  const std::size_t end = std::min(path.find('/'), path.size());
  rest = path.substr(end);
  return parse_number<std::int64_t>(path.substr(0, end), 1);
}

}  // namespace

std::string Portal::version_of(const std::string& topic) const {
  if (topic != kList) {
    return source_.version(parse_number<std::int64_t>(topic).value_or(0));
  }
  const auto view = source_.view();
  return view.ok() ? std::to_string(std::hash<std::string>()(portal_list(view.value()))) : kFailedVersion;
}

HttpAnswer Portal::list() const {
  const auto view = source_.view();
  if (!view.ok()) {
    HttpAnswer failed = html(failed_page(view.error().message()));
    failed.status = "500 Internal Server Error";
    return failed;
  }
  const std::string text = portal_list(view.value());
  return html(portal_page(text, std::to_string(std::hash<std::string>()(text))));
}

HttpAnswer Portal::job(std::int64_t number) const {
  const std::string version = source_.version(number);  // before the page: a change between the two is told then
  const auto record = source_.job(number);
  if (!record.ok()) {
    HttpAnswer unknown = html(unknown_page(record.error().message(), number, version));
    unknown.status = "404 Not Found";
    return unknown;
  }
  auto page = source_.page(record.value());
  HttpAnswer answer = html(followed_page(page.ok() ? std::move(page).value() : missing_page(page.error().message()),
                                         record.value(), version));
  if (!page.ok()) {
    answer.status = "404 Not Found";
  }
  return answer;
}

// The page may be older than the stream.
HttpAnswer Portal::stream_of(const std::string& topic, const std::string& query) {
  const std::string version = version_of(topic);
  HttpAnswer answer;
  answer.type = "text/event-stream";
  answer.headers = kHeaders;
  answer.body = "retry: 2000\n\n";
  answer.body += query == "v=" + version ? "" : kNews;
  answer.topic = topic;
  told_.try_emplace(topic, version);
  return answer;
}

HttpAnswer Portal::answer(const HttpRequest& request) {
  if (request.method != "GET") {
    return http_refusal("405 Method Not Allowed", "Allow: GET\r\n");
  }
  std::string_view path = request.path;
  const std::size_t slash = path.find('/', 1);
  if (slash == std::string_view::npos || !is_same_secret(path.substr(1, slash - 1), token_)) {
    return http_refusal("404 Not Found");
  }
  path.remove_prefix(slash + 1);
  if (path.empty()) {
    return list();
  }
  if (path == "events") {
    return stream_of(kList, request.query);
  }
  std::string_view rest;
  const auto number = job_in(path, rest);
  if (number && rest.empty()) {
    return job(*number);
  }
  return number && rest == "/events" ? stream_of(std::to_string(*number), request.query)
                                     : http_refusal("404 Not Found");
}

std::set<std::string> Portal::news(const std::set<std::string>& topics) {
  std::erase_if(told_, [&topics](const auto& known) { return !topics.contains(known.first); });
  std::set<std::string> changed;
  for (const std::string& topic : topics) {
    std::string version = version_of(topic);
    auto [known, is_new] = told_.try_emplace(topic, version);
    if (!is_new && known->second != version) {
      known->second = std::move(version);
      changed.insert(topic);
    }
  }
  return changed;
}

}  // namespace hvd::launch
