// Of commands that an agent runs for the launcher to reach other nodes (relay_hub.h).
#include "launcher/agent/message_fields.h"
#include "launcher/agent/messages.h"

namespace hvd::launch {

std::string RelayStartMessage::encode() const {
  ByteWriter out;
  out.u32(command);
  put_texts(out, argv);
  return std::move(out).str();
}

Result<RelayStartMessage> RelayStartMessage::decode(std::string_view body) {
  ByteReader in(body);
  RelayStartMessage m;
  m.command = in.u32();
  m.argv = take_texts(in);
  if (!in.finished() || m.argv.empty()) {
    return malformed("RelayStart");
  }
  return m;
}

std::string RelayOverMessage::encode() const {
  ByteWriter out;
  out.u32(command).u8(status ? 1 : 0).text(how);
  if (status) {
    out.u8(static_cast<std::uint8_t>(status->kind)).i32(status->value);
  }
  return std::move(out).str();
}

Result<RelayOverMessage> RelayOverMessage::decode(std::string_view body) {
  ByteReader in(body);
  RelayOverMessage m;
  m.command = in.u32();
  const std::uint8_t has_status = in.u8();
  m.how = in.text();
  std::uint8_t kind = 0;
  if (has_status == 1) {
    kind = in.u8();
    m.status.emplace();
    m.status->value = in.i32();
  }
  if (!in.finished() || has_status > 1 || kind > 1) {
    return malformed("RelayOver");
  }
  if (m.status) {
    m.status->kind = static_cast<ExitStatus::Kind>(kind);
  }
  return m;
}

Result<RelayMessage> RelayMessage::decode(std::string_view body) {
  ByteReader in(body);
  RelayMessage m;
  m.command = in.u32();
  if (!in.ok()) {
    return malformed("Relay");
  }
  m.bytes = as_text(in.take(in.left()));
  return m;
}

std::string relay_body(std::uint32_t command, std::string_view bytes) {
  ByteWriter head;
  head.u32(command);
  std::string body = std::move(head).str();
  body += bytes;
  return body;
}

std::string relay_number_body(std::uint32_t command, std::uint32_t number) {
  ByteWriter out;
  out.u32(command).u32(number);
  return std::move(out).str();
}

Result<std::uint32_t> decode_relay_number(const RelayMessage& message) {
  ByteReader in(message.bytes);
  const std::uint32_t number = in.u32();
  if (!in.finished()) {
    return malformed("Relay");
  }
  return number;
}

}  // namespace hvd::launch
