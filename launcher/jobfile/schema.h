// Schema: which keys a part of a job file may have, of which type. One table per form of file says all that can be said
// without knowing what the values mean; check() holds a document against it, json_schema() tells it to editors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/jobfile/document.h"

namespace hvd::launch {

struct Schema;

struct Field {
  enum class Type : std::uint8_t {
    kText,
    kTextOrNumber,  // text, or a number or truth value, as it is written
    kInteger,       // from `least` to `most`
    kBool,
    kMap,       // of `inner`
    kMaps,      // a list of these
    kTexts,     // text, or a list of kTextOrNumber
    kVariables  // a map of any names to kTextOrNumber or null
  };

  const char* key;
  Type type;
  const char* help;
  bool is_required = false;
  const Schema* inner = nullptr;
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::span<const char* const> words{};  // of a text: all that there are; empty: any
};

struct Schema {
  const char* name;  // of what has these keys, for messages
  std::span<const Field> fields;
};

// What the user should know of a file that can be used: "FILE:LINE:COLUMN: unknown key ...", one per key.
using Notices = std::vector<std::string>;

// An error for a wrong type or a missing key, a notice for each unknown key, which means nothing.
Result<void> check(const DocValue& map, const Schema& schema, const std::string& file, Notices& notices);

// The name that a misspelt one may mean; empty: none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

// A JSON Schema (draft 7) of the same.
std::string json_schema(const Schema& schema, const std::string& title);

}  // namespace hvd::launch
