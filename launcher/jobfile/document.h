// Document: what a job file says, JSON or YAML, as one tree in which each value knows where it stands, so that whoever
// reads it can say FILE:LINE:COLUMN. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/job/text_file.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Counted from 1; columns in bytes, as compilers do.
struct Position {
  int line = 0;
  int column = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

struct DocValue {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kReal, kText, kList, kMap };

  Kind kind = Kind::kNull;
  Position at;
  std::string text;               // of a scalar, as it was written; of kText the text itself
  std::vector<std::string> keys;  // of a map, in their order, each once
  std::vector<Position> key_at;   // of each key
  std::vector<DocValue> items;    // of a list, or the values of a map

  // The value of a key; nullptr: there is none, or it is null, which the service took for the same.
  [[nodiscard]] const DocValue* find(std::string_view key) const;
  // "the number 2", "a list", for messages.
  [[nodiscard]] std::string described() const;
};

// More than anybody writes by hand, and little enough that no file makes the launcher large or slow.
inline constexpr std::size_t kMostJobFileBytes = 1U << 20U;
inline constexpr int kMostDocDepth = 64;
inline constexpr std::size_t kMostDocValues = 20'000;
inline constexpr std::size_t kMostDocKeys = 1000;  // of one map

// JSON to the letter of RFC 8259: a comma too many, a comment, a key given twice or half a surrogate pair are errors.
Result<DocValue> parse_json_document(std::string_view text, const std::string& file);
// One YAML document. Plain scalars are what YAML 1.2's core schema makes of them; a key given twice is an error.
Result<DocValue> parse_yaml_document(std::string_view text, const std::string& file);
// The one that the file's name says (.json, .yaml, .yml), else JSON for what begins with a brace.
Result<DocValue> parse_document(std::string_view text, const std::string& file);

// kInvalid: "FILE:LINE:COLUMN: what".
Error error_at(const std::string& file, Position at, const std::string& what);

}  // namespace hvd::launch
