#include "runtime/rendezvous/record.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::record_test {
namespace {

constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();

RecordKey key_of(std::uint8_t byte) {
  RecordKey key;
  key.key.fill(byte);
  key.salt.fill(byte);
  return key;
}

// The records of these texts, one each.
std::vector<std::string> records_of(RecordSealer& sealer, const std::vector<std::string>& texts) {
  std::vector<std::string> records;
  for (const std::string& text : texts) {
    records.emplace_back();
    REQUIRE(sealer.seal(text, records.back()).ok());
  }
  return records;
}

// All that is opened until more is needed; "!" and why where it is refused.
std::string opened(RecordOpener& opener, std::string_view wire) {
  opener.feed(as_bytes(wire));
  std::string text;
  for (;;) {
    const auto next = opener.next();
    if (!next.ok()) {
      CHECK((next.error().code() == Code::kAuth || next.error().code() == Code::kProtocol));
      return text + "!" + next.error().message();
    }
    if (!next.value()) {
      return text;
    }
    text += as_text(*next.value());
  }
}

bool is_refused(const std::string& text) {
  return text.find('!') != std::string::npos;
}

}  // namespace

TEST_CASE("what is sealed comes out as it was, in any pieces, and nothing of it is to be read on the wire") {
  std::string text = "HF_TOKEN=hf_secret ";
  while (text.size() < 3 * kRecordBytes) {
    text += text;
  }
  RecordSealer sealer(key_of(1));
  std::string wire;
  REQUIRE(sealer.seal(text, wire).ok());
  REQUIRE(sealer.seal("", wire).ok());
  REQUIRE(sealer.seal("end", wire).ok());
  CHECK(wire.find("hf_secret") == std::string::npos);
  CHECK(wire.size() == text.size() + 3 + kRecordOverhead * ((text.size() + kRecordBytes - 1) / kRecordBytes + 1));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{65537}, wire.size()}) {
    RecordOpener opener(key_of(1));
    std::string out;
    for (std::size_t at = 0; at < wire.size(); at += piece) {
      out += opened(opener, std::string_view(wire).substr(at, piece));
    }
    CHECK(out == text + "end");
    CHECK(opener.buffered() == 0);
  }
}

TEST_CASE("the same text twice is not the same on the wire") {
  RecordSealer sealer(key_of(1));
  const auto records = records_of(sealer, {"step 1", "step 1"});
  CHECK(records[0] != records[1]);
}

TEST_CASE("a record that is repeated, left out, moved, cut short, or of the other direction is refused, for good") {
  RecordSealer sealer(key_of(1));
  const auto r = records_of(sealer, {"a", "b", "c"});
  struct Row {
    const char* what;
    std::string wire;
    std::string before;  // comes out
  };
  for (const Row& row :
       {Row{"repeated", r[0] + r[0], "a"}, Row{"left out", r[0] + r[2], "a"}, Row{"moved", r[1] + r[0], ""},
        Row{"cut", r[0].substr(0, r[0].size() - 1) + r[1], ""}, Row{"bytes between", r[0] + "x" + r[1], "a"}}) {
    CAPTURE(row.what);
    RecordOpener opener(key_of(1));
    const std::string out = opened(opener, row.wire + std::string(kRecordBytes + kRecordOverhead, 'z'));
    CHECK(is_refused(out));
    CHECK(out.substr(0, out.find('!')) == row.before);
    CHECK(is_refused(opened(opener, r[1])));
  }
  RecordOpener other(key_of(2));
  CHECK(is_refused(opened(other, r[0])));
}

TEST_CASE("each changed bit of a record is noticed, and one cut short gives nothing") {
  RecordSealer sealer(key_of(1));
  const std::string record = records_of(sealer, {"some words"}).front();
  for (std::size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::string changed = record;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    RecordOpener opener(key_of(1));
    // A length that has grown is waited for; what comes then is no such record.
    CHECK(is_refused(opened(opener, changed + std::string(kRecordBytes + kRecordOverhead, '\0'))));
  }
  for (std::size_t size = 0; size < record.size(); ++size) {
    RecordOpener opener(key_of(1));
    CHECK(opened(opener, record.substr(0, size)).empty());
  }
}

TEST_CASE("a length that no record has is refused at once, and nothing is kept for it") {
  for (const std::uint32_t length : {0U, 65537U, 0x80000000U, 0xFFFFFFFFU}) {
    ByteWriter header;
    header.u32(length);
    RecordOpener opener(key_of(1));
    CHECK(is_refused(opened(opener, header.str())));
  }
}

TEST_CASE("keys are renewed after so many records at both ends, and who has the first cannot read on") {
  RecordSealer sealer(key_of(1), 3);
  std::vector<std::string> texts(10, "text");
  const auto records = records_of(sealer, texts);
  RecordOpener opener(key_of(1), 3);
  RecordOpener never(key_of(1), kLast);
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK(opened(opener, records[i]) == "text");
    CHECK(is_refused(opened(never, records[i])) == (i >= 3));
  }
}

TEST_CASE("no number is used twice: at the last one the stream is refused at either end") {
  RecordSealer sealer(key_of(1), kLast, kLast - 1);
  const std::string record = records_of(sealer, {"last"}).front();
  std::string wire;
  CHECK(sealer.seal("more", wire).error().code() == Code::kResource);
  RecordOpener opener(key_of(1), kLast, kLast - 1);
  CHECK(opened(opener, record) == "last");
  opener.feed(as_bytes(record));
  CHECK(opener.next().error().code() == Code::kResource);
}

TEST_CASE("a record of several pieces that is fed without a copy is opened as one text") {
  RecordSealer sealer(key_of(1));
  RecordOpener opener(key_of(1));
  const std::array<Bytes, 3> pieces = {as_bytes("mark|"), as_bytes("data"), as_bytes("|mark")};
  std::vector<std::uint8_t> wire(14 + kRecordOverhead);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(sealer.seal_one(pieces, wire.data()).ok());
    // In two parts, the second of which comes to where there is room behind the first.
    for (const auto& [begin, end] :
         {std::pair{std::size_t{0}, std::size_t{9}}, std::pair{std::size_t{9}, wire.size()}}) {
      CHECK_FALSE(opener.next().value().has_value());
      const MutableBytes room = opener.room(1000);
      REQUIRE(room.size() == 1000);
      std::copy(wire.begin() + static_cast<std::ptrdiff_t>(begin), wire.begin() + static_cast<std::ptrdiff_t>(end),
                room.begin());
      opener.note_fed(end - begin);
    }
    CHECK(as_text(opener.next().value().value()) == "mark|data|mark");
  }
  CHECK(opener.buffered() == 0);
}

}  // namespace hvd::record_test
