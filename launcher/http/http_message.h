// Requests and answers of HTTP/1.1, as far as a small server needs them: no bodies of requests, a connection for each.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::launch {

struct HttpRequest {
  std::string method;
  std::string path;   // "/metrics"
  std::string query;  // what follows "?"
  std::string head;   // all lines, each with its end
};

struct HttpAnswer {
  std::string status = "200 OK";
  std::string type = "text/plain; charset=utf-8";
  std::string headers;  // further ones, each with "\r\n" at its end
  std::string body;
  // Not empty: the body is only the beginning of a stream of server-sent events (HTML standard, 9.2), to which
  // HttpServer::publish() of this topic adds.
  std::string topic;
};

// Reads a request's head. nullopt: it is none.
std::optional<HttpRequest> parse_http_request(std::string_view head);
// Returns the value of a header, whatever the case of its name; empty: it is not there.
std::string_view http_header(std::string_view head, std::string_view name);
// Returns the whole answer as it is sent.
std::string http_text(const HttpAnswer& answer);
// "404 Not Found", which is the body too.
HttpAnswer http_refusal(const std::string& status, const std::string& headers = "");

}  // namespace hvd::launch
