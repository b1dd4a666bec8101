#include "runtime/base/bytes.h"

#include <limits>

#include <doctest/doctest.h>

namespace hvd::bytes_test {

TEST_CASE("what is written is read back, and then nothing is left") {
  ByteWriter out;
  out.u8(200).u16(60000).u32(4000000000U).u64(1ULL << 63U).i32(-5).i64(std::numeric_limits<std::int64_t>::min());
  out.f64(-0.5).text("text with \0 in it").raw("raw", 3);
  ByteReader in(out.str());
  CHECK(in.u8() == 200);
  CHECK(in.u16() == 60000);
  CHECK(in.u32() == 4000000000U);
  CHECK(in.u64() == 1ULL << 63U);
  CHECK(in.i32() == -5);
  CHECK(in.i64() == std::numeric_limits<std::int64_t>::min());
  CHECK(in.f64() == -0.5);
  CHECK(in.text() == "text with ");
  CHECK_FALSE(in.finished());
  CHECK(as_text(in.take(3)) == "raw");
  CHECK(in.finished());
}

TEST_CASE("numbers are little-endian on the wire") {
  ByteWriter out;
  out.u32(0x01020304U);
  CHECK(out.str() == std::string("\x04\x03\x02\x01"));
}

TEST_CASE("a reader that has run out stays failed and gives zeros") {
  ByteReader in(std::string_view("\x01\x02\x03", 3));
  CHECK(in.u16() == 0x0201);
  CHECK(in.u32() == 0);
  CHECK_FALSE(in.ok());
  CHECK(in.u8() == 0);
  CHECK_FALSE(in.ok());
  CHECK_FALSE(in.finished());
  CHECK(in.left() == 0);
}

TEST_CASE("every cut of a message is refused") {
  ByteWriter out;
  out.text("hello").u32(7).text("");
  const std::string whole = out.str();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ByteReader in(std::string_view(whole).substr(0, size));
    in.text();
    in.u32();
    in.text();
    CHECK_FALSE(in.finished());
  }
}

TEST_CASE("a text longer than what is left is refused, not allocated") {
  ByteWriter out;
  out.u32(0xFFFFFFFFU).raw("abc", 3);
  ByteReader in(out.str());
  CHECK(in.text().empty());
  CHECK_FALSE(in.ok());
}

TEST_CASE("a count that the rest cannot hold is refused") {
  ByteWriter out;
  out.u32(3).raw("12345678", 8);
  CHECK(ByteReader(out.str()).count(2) == 3);
  ByteReader in(out.str());
  CHECK(in.count(4) == 0);
  CHECK_FALSE(in.ok());
}

}  // namespace hvd::bytes_test
