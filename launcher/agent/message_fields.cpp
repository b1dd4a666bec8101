#include "launcher/agent/message_fields.h"

namespace hvd::launch {

void put_pairs(ByteWriter& out, const Pairs& pairs) {
  out.u32(static_cast<std::uint32_t>(pairs.size()));
  for (const auto& [name, value] : pairs) {
    out.text(name).text(value);
  }
}

Pairs take_pairs(ByteReader& in) {
  Pairs pairs(in.count(8));
  for (auto& [name, value] : pairs) {
    name = in.text();
    value = in.text();
  }
  return pairs;
}

void put_texts(ByteWriter& out, const std::vector<std::string>& texts) {
  out.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    out.text(text);
  }
}

std::vector<std::string> take_texts(ByteReader& in) {
  std::vector<std::string> texts(in.count(4));
  for (std::string& text : texts) {
    text = in.text();
  }
  return texts;
}

void put_numbers(ByteWriter& out, const std::vector<std::int32_t>& numbers) {
  out.u32(static_cast<std::uint32_t>(numbers.size()));
  for (const std::int32_t number : numbers) {
    out.i32(number);
  }
}

std::vector<std::int32_t> take_numbers(ByteReader& in) {
  std::vector<std::int32_t> numbers(in.count(4));
  for (std::int32_t& number : numbers) {
    number = in.i32();
  }
  return numbers;
}

Error malformed(const char* what) {
  return Error(Code::kProtocol, std::string("malformed ") + what + " message in the launcher-agent conversation");
}

}  // namespace hvd::launch
