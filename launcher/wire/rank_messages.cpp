// Of what an agent tells of its ranks, and what these tell each other through it.
#include "launcher/wire/messages.h"

namespace hvd::launch {
namespace {

// Enumerators come from outside as numbers; one out of range must not become an enum.
bool is_stream(std::uint8_t stream) {
  return stream == 1 || stream == 2;
}

}  // namespace

std::string StartFailedMessage::encode() const {
  return encoded(*this);
}

Result<StartFailedMessage> StartFailedMessage::decode(std::string_view body) {
  return decoded<StartFailedMessage>(body, "StartFailed");
}

Result<OutputMessage> OutputMessage::decode(std::string_view body) {
  ByteReader in(body);
  OutputMessage m;
  m.rank = in.i32();
  const std::uint8_t stream = in.u8();
  if (!in.ok() || !is_stream(stream)) {
    return malformed("Output");
  }
  m.stream = static_cast<StreamId>(stream);
  m.bytes = as_text(in.take(in.left()));
  return m;
}

std::string FailingMessage::encode() const {
  return encoded(rank, generation) + news.encode();
}

Result<FailingMessage> FailingMessage::decode(std::string_view body) {
  ByteReader in(body);
  FailingMessage m;
  m.rank = in.i32();
  m.generation = in.u32();
  if (!in.ok()) {
    return malformed("Failing");
  }
  HVD_TRY_ASSIGN(m.news, FailureNews::decode(body.substr(sizeof m.rank + sizeof m.generation)));
  return m;
}

std::string ExitedMessage::encode() const {
  return encoded(*this);
}

Result<ExitedMessage> ExitedMessage::decode(std::string_view body) {
  return decoded<ExitedMessage>(body, "Exited");
}

std::string ExchangeMessage::encode() const {
  return encoded(*this);
}

Result<ExchangeMessage> ExchangeMessage::decode(std::string_view body) {
  return decoded<ExchangeMessage>(body, "Exchange");
}

std::string ExchangedMessage::encode() const {
  return encoded(*this);
}

Result<ExchangedMessage> ExchangedMessage::decode(std::string_view body) {
  return decoded<ExchangedMessage>(body, "Exchanged");
}

std::string output_frame(std::int32_t rank, StreamId stream, std::string_view bytes) {
  std::string body;
  body.reserve(sizeof rank + 1 + bytes.size());
  ByteWriter head;
  head.i32(rank).u8(static_cast<std::uint8_t>(stream));
  body += head.str();
  body += bytes;
  return agent_frame(AgentMessage::kOutput, body);
}

std::string output_end_frame(std::int32_t rank, StreamId stream) {
  ByteWriter body;
  body.i32(rank).u8(static_cast<std::uint8_t>(stream));
  return agent_frame(AgentMessage::kOutputEnd, body.str());
}

}  // namespace hvd::launch
