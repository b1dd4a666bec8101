// Schema lists the keys that a part of a job file may have, and their types. One table per form of file says everything
// that can be said without knowing what the values mean. check() compares a document with it, json_schema() exports it
// for editors.
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
    kMap,       // a map with the keys of `inner`
    kMaps,      // a list of such maps
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
  std::span<const char* const> words{};  // all values that a text may have; empty: any
};

struct Schema {
  const char* name;  // of the part that has these keys, for messages
  std::span<const Field> fields;
  std::span<const char* const> passed_over{};  // keys that say nothing of what runs
};

// Notices tell the user about a file, each in one line: "FILE:LINE:COLUMN: ...".
using Notices = std::vector<std::string>;

// Returns an error for a wrong type or a missing key, and a notice for each unknown key. Keys that begin with '$' are
// for other tools.
Result<void> check(const DocValue& map, const Schema& schema, const std::string& file, Notices& notices);

// Takes out of a map that has passed check() all keys that the schema does not have, and those that begin with '$'. So
// nobody acts on what stands in a comment.
void drop_unknown(DocValue& map, const Schema& schema);

// Returns the same as a JSON Schema (draft 7).
std::string json_schema(const Schema& schema, const std::string& title);

}  // namespace hvd::launch
