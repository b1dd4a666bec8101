// Of what an agent tells of its ranks, and what these tell each other through it.
#include "launcher/agent/message_fields.h"
#include "launcher/agent/messages.h"

namespace hvd::launch {
namespace {

// Enumerators come from outside as numbers; one out of range must not become an enum.
bool is_stream(std::uint8_t stream) {
  return stream == 1 || stream == 2;
}

}  // namespace

std::string StartFailedMessage::encode() const {
  ByteWriter out;
  out.i32(rank).i32(static_cast<std::int32_t>(why.code())).text(why.message());
  return std::move(out).str();
}

Result<StartFailedMessage> StartFailedMessage::decode(std::string_view body) {
  ByteReader in(body);
  StartFailedMessage m;
  m.rank = in.i32();
  const std::int32_t code = in.i32();
  m.why = Error(static_cast<Code>(code), in.text());
  if (!in.finished() || code < 1 || code > static_cast<std::int32_t>(Code::kMismatch)) {
    return malformed("StartFailed");
  }
  return m;
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
  ByteWriter out;
  out.i32(rank);
  return std::move(out).str() + news.encode();
}

Result<FailingMessage> FailingMessage::decode(std::string_view body) {
  ByteReader in(body);
  FailingMessage m;
  m.rank = in.i32();
  if (!in.ok()) {
    return malformed("Failing");
  }
  HVD_TRY_ASSIGN(m.news, FailureNews::decode(body.substr(sizeof m.rank)));
  return m;
}

std::string ExitedMessage::encode() const {
  ByteWriter out;
  out.i32(rank).u8(static_cast<std::uint8_t>(status.kind)).i32(status.value);
  out.u8(status.has_core ? 1 : 0).u8(status.out_of_memory ? 1 : 0).text(detail.memory).text(detail.core);
  return std::move(out).str();
}

Result<ExitedMessage> ExitedMessage::decode(std::string_view body) {
  ByteReader in(body);
  ExitedMessage m;
  m.rank = in.i32();
  const std::uint8_t kind = in.u8();
  m.status.value = in.i32();
  const std::uint8_t has_core = in.u8();
  const std::uint8_t out_of_memory = in.u8();
  m.detail.memory = in.text();
  m.detail.core = in.text();
  if (!in.finished() || kind > 1 || has_core > 1 || out_of_memory > 1) {
    return malformed("Exited");
  }
  m.status.has_core = has_core == 1;
  m.status.out_of_memory = out_of_memory == 1;
  m.status.kind = static_cast<ExitStatus::Kind>(kind);
  return m;
}

std::string ExchangeMessage::encode() const {
  ByteWriter out;
  out.i32(rank).text(key).text(value).u32(epoch);
  return std::move(out).str();
}

Result<ExchangeMessage> ExchangeMessage::decode(std::string_view body) {
  ByteReader in(body);
  ExchangeMessage m;
  m.rank = in.i32();
  m.key = in.text();
  m.value = in.text();
  m.epoch = in.u32();
  if (!in.finished()) {
    return malformed("Exchange");
  }
  return m;
}

std::string ExchangedMessage::encode() const {
  ByteWriter out;
  out.text(key);
  put_texts(out, values);
  return std::move(out).str();
}

Result<ExchangedMessage> ExchangedMessage::decode(std::string_view body) {
  ByteReader in(body);
  ExchangedMessage m;
  m.key = in.text();
  m.values = take_texts(in);
  if (!in.finished()) {
    return malformed("Exchanged");
  }
  return m;
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
