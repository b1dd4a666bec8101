// Document is the contents of a job file, JSON or YAML, as one tree. Each value knows its position, so that errors can
// name FILE:LINE:COLUMN. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/job/text_file.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Position counts from 1; columns are in bytes, as compilers count them.
struct Position {
  int line = 0;
  int column = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

struct DocValue {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kReal, kText, kList, kMap };

  Kind kind = Kind::kNull;
  Position at;
  std::string text;               // a scalar as it was written; for kText the text itself
  std::vector<std::string> keys;  // of a map, in their order; each key occurs once
  std::vector<Position> key_at;   // of each key
  std::vector<DocValue> items;    // of a list, or the values of a map

  // Returns the value of a key. nullptr: there is none, or it is null, which the Batch AI service treated as absent.
  [[nodiscard]] const DocValue* find(std::string_view key) const;
  // Returns "the number 2" or "a list", for messages.
  [[nodiscard]] std::string described() const;
};

// These limits are above what anybody writes by hand, and low enough that no file makes the launcher large or slow.
inline constexpr std::size_t kMostJobFileBytes = 1U << 20U;
inline constexpr int kMostDocDepth = 64;
inline constexpr std::size_t kMostDocValues = 20'000;
inline constexpr std::size_t kMostDocKeys = 1000;  // of one map

// Reads JSON strictly by RFC 8259: an extra comma, a comment, a duplicate key or half a surrogate pair is an error.
Result<DocValue> parse_json_document(std::string_view text, const std::string& file);
// Reads one YAML document. Plain scalars have the types of YAML 1.2's core schema; a duplicate key is an error.
Result<DocValue> parse_yaml_document(std::string_view text, const std::string& file);
// Reads the format that the file's name says (.json, .yaml, .yml); without such a name, a text that begins with a brace
// is JSON.
Result<DocValue> parse_document(std::string_view text, const std::string& file);

// Returns a kInvalid error: "FILE:LINE:COLUMN: what".
Error error_at(const std::string& file, Position at, const std::string& what);
// The same for what is no fault of the file: the error keeps its code.
Error error_at(const std::string& file, Position at, const Error& why);

}  // namespace hvd::launch
