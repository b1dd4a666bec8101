#include "runtime/base/text.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

namespace hvd::text_test {
namespace {

TEST_CASE("a number is the whole text and within its bounds") {
  CHECK(parse_number<int>("42") == 42);
  CHECK(parse_number<int>("-7") == -7);
  CHECK(parse_number<int>("7", 7, 7) == 7);
  CHECK(parse_number<double>("0.5", 0, 1) == 0.5);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x10", "1.5", "99999999999", "8"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number<int>(text, -7, 7).has_value());
  }
  for (const char* text : {"nan", "inf", "-inf", "1e999", "-0.1"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number<double>(text, 0, 1e6).has_value());
  }
}

TEST_CASE("a list in words has separators only between words") {
  std::string list;
  for (const char* word : {"a", "b", "c"}) {
    add_to_list(list, word);
  }
  CHECK(list == "a, b, c");
  add_to_list(list, "d", " or ");
  CHECK(list == "a, b, c or d");
  CHECK(joined({"a", "b", "c"}) == "a, b, c");
  CHECK(joined({"", "b"}, "|") == "|b");
  CHECK(joined({"a"}, "|") == "a");
  CHECK(joined({}).empty());
}

TEST_CASE("the fields of a process are counted from behind its name, which may hold any characters") {
  CHECK(stat_field("12 (a) S (b)) R 7 12\n", 3) == "R");
  CHECK(stat_field("12 (a) S (b)) R 7 12\n", 4) == "7");
  CHECK(stat_field("12 (a) S (b)) R 7 12\n", 5) == "12");
  CHECK(stat_field("12 (a) S (b)) R 7 12\n", 6).empty());
  CHECK(stat_field("12 (a)", 3).empty());
  CHECK(stat_field("12 (a", 3).empty());
}

TEST_CASE("what has lasted for a minute or more is told in minutes and hours, and a limit as it was set") {
  CHECK(minutes_text(std::chrono::milliseconds(90'900)) == "1 min 30 s");
  CHECK(minutes_text(std::chrono::seconds(3599)) == "59 min 59 s");
  CHECK(minutes_text(std::chrono::seconds(86'400 + 305)) == "24 h 5 min");
  CHECK(duration_text(std::chrono::seconds(300)) == "300 s");
}

TEST_CASE("a size has a unit or none, and is within its bound") {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40U;
  CHECK(parse_byte_count("4", kMost) == 4);
  CHECK(parse_byte_count("64k", kMost) == 65536);
  CHECK(parse_byte_count("2M", kMost) == 2U << 20U);
  CHECK(parse_byte_count("1T", kMost) == kMost);
  for (const char* text :
       {"", "K", "0", "0K", "-4", "+4", "1.5M", "4MB", "4 M", "2T", "1025G", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_byte_count(text, kMost).has_value());
  }
}

TEST_CASE("an address that has colons itself has brackets before its port") {
  CHECK(host_and_port("10.0.0.1", "80") == "10.0.0.1:80");
  CHECK(host_and_port("fd00::1", "80") == "[fd00::1]:80");
}

TEST_CASE("letters are made small, and nothing else is changed") {
  CHECK(lowered("GPUs 1\xC4") == "gpus 1\xC4");
}

TEST_CASE("one thing has no s at its end") {
  CHECK(counted(1, "node") == "1 node");
  CHECK(counted(0, "node") == "0 nodes");
  CHECK(counted(2, "node") == "2 nodes");
}

TEST_CASE("a text is shown without control characters") {
  CHECK(without_controls("a\x1b[2J\x7f\n\tb") == "a?[2J???b");
  CHECK(without_controls("a\n\tb\r", "\n\t") == "a\n\tb?");
  CHECK(without_controls("\xc2\x9b"
                         "2J \xc2\xa0 \xc3\xa9 \xc2") == "?2J \xc2\xa0 \xc3\xa9 \xc2");
}

TEST_CASE("a text becomes one shell word that means exactly it") {
  CHECK(quoted_word("a/b.c=1") == "'a/b.c=1'");
  CHECK(quoted_word("a/b.c-1") == "a/b.c-1");
  CHECK(quoted_word("") == "''");
  CHECK(quoted_word("it's $(x)") == "'it'\\''s $(x)'");
  CHECK(quoted_word("{a}=1", "={}") == "{a}=1");
}

TEST_CASE("a formatted text is cut where it would be longer than 399 bytes") {
  CHECK(formatted("%s has %d, or %.1f %%", "a", 3, 2.25) == "a has 3, or 2.2 %");
  CHECK(formatted("%500s", "a") == std::string(399, ' '));
}

TEST_CASE("a list has a word only where it is one of its words") {
  CHECK(has_word("cpu memory io", "memory"));
  CHECK(has_word("cpu,memory", "memory", ','));
  CHECK_FALSE(has_word("cpu memory_x io", "memory"));
  CHECK_FALSE(has_word("cpu memory io", "memory io"));
  CHECK_FALSE(has_word("", ""));
}

TEST_CASE("only the right secret is one") {
  CHECK(is_same_secret("abc", "abc"));
  for (const char* const wrong : {"", "ab", "abcd", "abd", "Abc"}) {
    CHECK_FALSE(is_same_secret("abc", wrong));
  }
}

TEST_CASE("bytes are two digits each") {
  const std::array<std::uint8_t, 3> bytes = {0x00, 0x9f, 0xa0};
  CHECK(hex(bytes) == "009fa0");
  CHECK(hex({}).empty());
}

}  // namespace

}  // namespace hvd::text_test
