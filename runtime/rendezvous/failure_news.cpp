#include "runtime/rendezvous/failure_news.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace hvd {
namespace {

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

std::string FailureNews::encode() const {
  ByteWriter out;
  out.u8(static_cast<std::uint8_t>(kind)).i32(by).i32(exit_code).text(what).u8(has_committed ? 1 : 0);
  return std::move(out).str();
}

Result<FailureNews> FailureNews::decode(std::string_view body) {
  ByteReader in(body);
  FailureNews news;
  const std::uint8_t kind = in.u8();
  news.by = in.i32();
  news.exit_code = in.i32();
  news.what = in.text();
  const std::uint8_t has_committed = in.u8();
  const bool is_line =
      news.what.size() <= kMaxWhatBytes && std::none_of(news.what.begin(), news.what.end(), is_control);
  if (!in.finished() || kind > static_cast<std::uint8_t>(Kind::kOver) || news.by < -1 || news.exit_code < 0 ||
      news.exit_code > 255 || !is_line || has_committed > 1) {
    return Error(Code::kProtocol, "malformed news of a failure");
  }
  news.kind = static_cast<Kind>(kind);
  news.has_committed = has_committed == 1;
  return news;
}

std::string one_line(std::string_view text) {
  std::size_t size = std::min(text.size(), FailureNews::kMaxWhatBytes);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) {
    --size;  // the next byte continues a character, which would be cut
  }
  std::string line(text.substr(0, size));
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  return line;
}

}  // namespace hvd
