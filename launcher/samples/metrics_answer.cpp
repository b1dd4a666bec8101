#include "launcher/samples/metrics_answer.h"

#include "runtime/base/text.h"

namespace hvd::launch {

HttpAnswer metrics_answer(const HttpRequest& request, const std::string& token,
                          const std::function<std::string()>& metrics) {
  if (!token.empty() && !is_same_secret(http_header(request.head, "authorization"), "Bearer " + token)) {
    return http_refusal("401 Unauthorized", "WWW-Authenticate: Bearer\r\n");
  }
  if (request.method != "GET") {
    return http_refusal("405 Method Not Allowed", "Allow: GET\r\n");
  }
  if (request.path != "/metrics") {
    return http_refusal("404 Not Found");
  }
  HttpAnswer answer;
  answer.type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
  answer.body = metrics();
  return answer;
}

}  // namespace hvd::launch
