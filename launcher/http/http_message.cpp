#include "launcher/http/http_message.h"

#include <algorithm>
#include <cctype>

#include "runtime/base/text.h"

namespace hvd::launch {

std::optional<HttpRequest> parse_http_request(std::string_view head) {
  const std::string_view line = head.substr(0, std::min(head.find("\r\n"), head.size()));
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || !line.substr(second + 1).starts_with("HTTP/1.")) {
    return std::nullopt;
  }
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::size_t mark = std::min(target.find('?'), target.size());
  return HttpRequest{std::string(line.substr(0, first)), std::string(target.substr(0, mark)),
                     std::string(target.substr(std::min(mark + 1, target.size()))), std::string(head)};
}

std::string_view http_header(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const bool is_it =
        line.size() > name.size() && line[name.size()] == ':' &&
        std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
        });
    if (is_it) {
      return trimmed(line.substr(name.size() + 1));
    }
  }
  return "";
}

std::string http_text(const HttpAnswer& answer) {
  const bool is_stream = !answer.topic.empty();
  return "HTTP/1.1 " + answer.status + "\r\nContent-Type: " + answer.type + "\r\n" +
         (is_stream ? "" : "Content-Length: " + std::to_string(answer.body.size()) + "\r\n") + answer.headers +
         "Connection: close\r\n\r\n" + answer.body;
}

HttpAnswer http_refusal(const std::string& status, const std::string& headers) {
  HttpAnswer answer;
  answer.status = status;
  answer.headers = headers;
  answer.body = status + "\n";
  return answer;
}

}  // namespace hvd::launch
