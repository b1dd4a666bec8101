#include "launcher/http/http_message.h"

#include <doctest/doctest.h>

namespace hvd::launch::http_message_test {

TEST_CASE("http: a request's head, and what is none") {
  const auto request = parse_http_request("GET /a/b?c=1&d HTTP/1.1\r\nHost: x\r\nAccept:  a, b \r\n");
  REQUIRE(request);
  CHECK(request->method == "GET");
  CHECK(request->path == "/a/b");
  CHECK(request->query == "c=1&d");
  CHECK(http_header(request->head, "HOST") == "x");
  CHECK(http_header(request->head, "accept") == "a, b");
  CHECK(http_header(request->head, "acce") == "");
  for (const char* const odd :
       {"", "GET", "GET ", "GET /metrics", "GET /metrics SIP/2.0", "\r\n", "  \r\n", "\x16\x03\x01"}) {
    CAPTURE(odd);
    CHECK_FALSE(parse_http_request(odd));
  }
}

TEST_CASE("http: an answer as it is sent") {
  HttpAnswer answer;
  answer.body = "up 1\n";
  answer.headers = "Cache-Control: no-store\r\n";
  CHECK(http_text(answer) ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\nup 1\n");
  answer.topic = "jobs";  // a stream has no length
  CHECK(http_text(answer).find("Content-Length") == std::string::npos);
  CHECK(http_text(http_refusal("404 Not Found")).ends_with("\r\n\r\n404 Not Found\n"));
}

}  // namespace hvd::launch::http_message_test
