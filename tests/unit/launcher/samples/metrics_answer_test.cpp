#include "launcher/samples/metrics_answer.h"

#include <string>

#include <doctest/doctest.h>

#include "launcher/job/metrics_place.h"

namespace hvd::launch::metrics_answer_test {
namespace {

HttpAnswer answer_to(std::string_view head, const std::string& token = "") {
  return metrics_answer(parse_http_request(head).value(), token, [] { return std::string("up 1\n# EOF\n"); });
}

std::string status_of(std::string_view head, const std::string& token = "") {
  return answer_to(head, token).status;
}

TEST_CASE("a request for the metrics gets them, and others what HTTP says of them") {
  const HttpAnswer answer = answer_to("GET /metrics HTTP/1.1\r\nHost: x\r\n");
  CHECK(answer.type == "application/openmetrics-text; version=1.0.0; charset=utf-8");
  CHECK(answer.body == "up 1\n# EOF\n");
  CHECK(status_of("GET /metrics?x=1 HTTP/1.0\r\n") == "200 OK");
  CHECK(status_of("GET / HTTP/1.1\r\n") == "404 Not Found");
  CHECK(status_of("GET /metricsx HTTP/1.1\r\n") == "404 Not Found");
  CHECK(status_of("POST /metrics HTTP/1.1\r\n") == "405 Method Not Allowed");
}

TEST_CASE("a token is asked for, whatever else is asked") {
  const char* const refused = "401 Unauthorized";
  CHECK(status_of("GET /metrics HTTP/1.1\r\n", "secret") == refused);
  CHECK(status_of("GET / HTTP/1.1\r\n", "secret") == refused);
  for (const char* const wrong : {"Bearer secre", "Bearer secretx", "secret", "Bearer  secret", "Basic secret", ""}) {
    CHECK(status_of(std::string("GET /metrics HTTP/1.1\r\nAuthorization: ") + wrong + "\r\n", "secret") == refused);
  }
  CHECK(status_of("GET /metrics HTTP/1.1\r\nHost: x\r\nauthorization:Bearer secret \r\n", "secret") == "200 OK");
}

TEST_CASE("a place is a socket, or an address that others cannot reach without a token") {
  CHECK(parse_metrics_place("unix:/run/x", "").value().socket == "/run/x");
  CHECK(parse_metrics_place("127.0.0.1:9400", "").value().port == 9400);
  CHECK(parse_metrics_place("[::1]:9400", "").value().ip == "::1");
  CHECK(parse_metrics_place("0.0.0.0:9400", "t").value().ip == "0.0.0.0");
  CHECK(parse_metrics_place("10.0.0.1:9400", "").error().message().find("--metrics-token") != std::string::npos);
  for (const char* const odd : {"", "unix:", "9400", ":9400", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "x:y"}) {
    CAPTURE(odd);
    CHECK_FALSE(parse_metrics_place(odd, "t").ok());
  }
}

}  // namespace

}  // namespace hvd::launch::metrics_answer_test
