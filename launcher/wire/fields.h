// What a message is made of, said once: `fields` of the message walks over its fields in their order on the wire, and
// both its encoder and its decoder follow that walk. A field more is one word more in one place.
//
//   struct StopMessage {
//     ...
//     static void fields(auto& m, auto& walk) { walk(m.signal, m.grace_ms, m.spared); }
//   };
//
// A decoder is total: it answers a message or an error, whatever the bytes are. Value types.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu_list.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// An enumerator travels as one byte, and one out of its range is refused before it becomes an enum.
template <typename Enum>
struct Bounded {
  Enum& value;
  std::remove_const_t<Enum> first;
  std::remove_const_t<Enum> last;
};
template <typename Enum>
Bounded<Enum> bounded(Enum& value, std::remove_const_t<Enum> first, std::remove_const_t<Enum> last) {
  return {value, first, last};
}

// Whether an optional part follows: one byte. The walk goes on to the part itself where it is there.
template <typename Optional>
struct Presence {
  Optional& part;
};
template <typename Optional>
Presence<Optional> presence(Optional& part) {
  return {part};
}

// Another message inside this one, as a text; an optional one that is not there is an empty text.
template <typename Message>
struct Embedded {
  Message& message;
};
template <typename Message>
Embedded<Message> embedded(Message& message) {
  return {message};
}

// It asks only whether there are fields.
struct FieldProbe {
  template <typename... Parts>
  void operator()(Parts&&...) {}
};
template <typename Part>
concept HasFields = requires(const Part& part, FieldProbe& probe) { Part::fields(part, probe); };

class FieldWriter {
 public:
  template <typename... Parts>
  void operator()(const Parts&... parts) {
    (put(parts), ...);
  }
  [[nodiscard]] std::string str() && { return std::move(out_).str(); }

 private:
  void put(bool flag) { out_.u8(flag ? 1 : 0); }
  void put(std::int32_t number) { out_.i32(number); }
  void put(std::uint32_t number) { out_.u32(number); }
  void put(std::int64_t number) { out_.i64(number); }
  void put(std::uint64_t number) { out_.u64(number); }
  void put(double number) { out_.f64(number); }
  void put(Duration duration) { out_.i64(duration.count()); }
  void put(const std::string& text) { out_.text(text); }
  void put(const Error& error) { out_.i32(static_cast<std::int32_t>(error.code())).text(error.message()); }
  void put(const CpuCore& core) { (*this)(core.numa_node, core.cpus); }
  template <std::size_t N>
  void put(const std::array<std::uint8_t, N>& bytes) {
    out_.raw(bytes.data(), bytes.size());
  }
  void put(const std::pair<std::string, std::string>& pair) { (*this)(pair.first, pair.second); }
  template <typename Item>
  void put(const std::vector<Item>& items) {
    out_.u32(static_cast<std::uint32_t>(items.size()));
    for (const Item& item : items) {
      put(item);
    }
  }
  template <typename Enum>
  void put(const Bounded<Enum>& enumerator) {
    out_.u8(static_cast<std::uint8_t>(enumerator.value));
  }
  template <typename Optional>
  void put(const Presence<Optional>& optional) {
    put(optional.part.has_value());
  }
  template <typename Message>
  void put(const Embedded<const std::optional<Message>>& optional) {
    put(optional.message ? optional.message->encode() : std::string());
  }
  template <typename Message>
  void put(const Embedded<const Message>& whole) {
    put(whole.message.encode());
  }
  template <HasFields Part>
  void put(const Part& part) {
    Part::fields(part, *this);
  }

  ByteWriter out_;
};

class FieldReader {
 public:
  explicit FieldReader(std::string_view body) : in_(body) {}
  template <typename... Parts>
  void operator()(Parts&&... parts) {
    (take(parts), ...);
  }
  // All fields were there, none with a value that means nothing, and nothing came after them.
  [[nodiscard]] bool finished() const { return is_valid_ && in_.finished(); }

 private:
  void expect(bool is_valid) { is_valid_ = is_valid_ && is_valid; }

  void take(bool& flag) {
    const std::uint8_t number = in_.u8();
    expect(number <= 1);
    flag = number == 1;
  }
  void take(std::int32_t& number) { number = in_.i32(); }
  void take(std::uint32_t& number) { number = in_.u32(); }
  void take(std::int64_t& number) { number = in_.i64(); }
  void take(std::uint64_t& number) { number = in_.u64(); }
  void take(double& number) { number = in_.f64(); }
  void take(Duration& duration) { duration = Duration(in_.i64()); }
  void take(std::string& text) { text = in_.text(); }
  void take(Error& error) {
    const std::int32_t code = in_.i32();
    const bool is_known = code >= 1 && code <= static_cast<std::int32_t>(Code::kMismatch);
    expect(is_known);
    error = Error(is_known ? static_cast<Code>(code) : Code::kProtocol, in_.text());
  }
  void take(CpuCore& core) { (*this)(core.numa_node, core.cpus); }
  template <std::size_t N>
  void take(std::array<std::uint8_t, N>& bytes) {
    if (const Bytes taken = in_.take(N); taken.size() == N) {
      std::memcpy(bytes.data(), taken.data(), N);
    }
  }
  void take(std::pair<std::string, std::string>& pair) { (*this)(pair.first, pair.second); }
  // A count that the rest cannot hold is refused before it becomes an allocation. The least that an item takes is what
  // an empty one does.
  template <typename Item>
  void take(std::vector<Item>& items) {
    FieldWriter empty;
    empty(Item());
    items.resize(in_.count(std::move(empty).str().size()));
    for (Item& item : items) {
      take(item);
    }
  }
  template <typename Enum>
  void take(const Bounded<Enum>& enumerator) {
    const auto value = static_cast<Enum>(in_.u8());
    const bool is_known = value >= enumerator.first && value <= enumerator.last;
    expect(is_known);
    enumerator.value = is_known ? value : enumerator.first;
  }
  template <typename Part>
  void take(const Presence<std::optional<Part>>& optional) {
    bool is_there = false;
    take(is_there);
    optional.part = is_there ? std::optional<Part>(Part()) : std::nullopt;
  }
  template <typename Message>
  void take(const Embedded<Message>& whole) {
    auto message = Message::decode(in_.text());
    expect(message.ok());
    if (message.ok()) {
      whole.message = std::move(message).value();
    }
  }
  template <typename Message>
  void take(const Embedded<std::optional<Message>>& optional) {
    const std::string text = in_.text();
    optional.message = text.empty() ? std::nullopt : std::optional<Message>(Message());
    if (optional.message) {
      auto message = Message::decode(text);
      expect(message.ok());
      if (message.ok()) {
        optional.message = std::move(message).value();
      }
    }
  }
  template <HasFields Part>
  void take(Part& part) {
    Part::fields(part, *this);
  }

  ByteReader in_;
  bool is_valid_ = true;
};

// `what`: the message's name.
inline Error malformed(const char* what) {
  return Error(Code::kProtocol, std::string("malformed ") + what + " message in the launcher-agent conversation");
}

template <typename... Parts>
std::string encoded(const Parts&... parts) {
  FieldWriter out;
  out(parts...);
  return std::move(out).str();
}

// `is_valid` asks what the fields mean together, once each of them was read.
template <typename Message, typename Check>
Result<Message> decoded(std::string_view body, const char* what, const Check& is_valid) {
  FieldReader in(body);
  Message message;
  in(message);
  if (!in.finished() || !is_valid(message)) {
    return malformed(what);
  }
  return message;
}
template <typename Message>
Result<Message> decoded(std::string_view body, const char* what) {
  return decoded<Message>(body, what, [](const Message&) { return true; });
}

// Defines a message's encode() and decode(). After the type come its name in errors and, where its fields can disagree,
// what asks that (decoded()).
#define HVD_MESSAGE(Type, ...)                       \
  std::string Type::encode() const {                 \
    return encoded(*this);                           \
  }                                                  \
  Result<Type> Type::decode(std::string_view body) { \
    return decoded<Type>(body, __VA_ARGS__);         \
  }

}  // namespace hvd::launch
