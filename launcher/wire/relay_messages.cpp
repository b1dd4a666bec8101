// Of commands that an agent runs for the launcher to reach other nodes (relay_hub.h).
#include "launcher/wire/messages.h"

namespace hvd::launch {

std::string RelayStartMessage::encode() const {
  return encoded(*this);
}

Result<RelayStartMessage> RelayStartMessage::decode(std::string_view body) {
  return decoded<RelayStartMessage>(body, "RelayStart", [](const RelayStartMessage& m) { return !m.argv.empty(); });
}

std::string RelayOverMessage::encode() const {
  return encoded(*this);
}

Result<RelayOverMessage> RelayOverMessage::decode(std::string_view body) {
  return decoded<RelayOverMessage>(body, "RelayOver");
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
  return encoded(command).append(bytes);
}

std::string relay_number_body(std::uint32_t command, std::uint32_t number) {
  return encoded(command, number);
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
