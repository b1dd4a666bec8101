#include "launcher/jobfile/schema.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "launcher/job/nearest_name.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Kind = DocValue::Kind;

bool is_scalar(const DocValue& value) {
  return value.kind == Kind::kText || value.kind == Kind::kBool || value.kind == Kind::kInteger ||
         value.kind == Kind::kReal;
}

std::string listed(std::span<const char* const> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
  }
  return text;
}

char lowered(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lowered(x) == lowered(y); });
}

// Returns the field of a key; nullptr: the schema has none.
const Field* field_of(const Schema& schema, const std::string& key) {
  const auto found =
      std::find_if(schema.fields.begin(), schema.fields.end(), [&key](const Field& field) { return key == field.key; });
  return found == schema.fields.end() ? nullptr : &*found;
}

class Checker {
 public:
  Checker(const std::string& file, Notices& notices) : file_(file), notices_(notices) {}

  Result<void> check_map(const DocValue& map, const Schema& schema) {
    if (map.kind != Kind::kMap) {
      return error_at(file_, map.at,
                      std::string(schema.name) + ": expected keys with values, found " + map.described());
    }
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const Field* field = field_of(schema, map.keys[i]);
      if (field == nullptr) {
        if (map.keys[i].starts_with('$')) {
          continue;  // for other tools, as $comment
        }
        note_unknown(map.keys[i], map.key_at[i], schema);
      } else if (map.items[i].kind != Kind::kNull) {
        HVD_TRY(check_value(map.items[i], *field));
      }
    }
    for (const Field& field : schema.fields) {
      if (field.is_required && map.find(field.key) == nullptr) {
        return error_at(file_, map.at,
                        std::string(schema.name) + ": the key '" + field.key + "' is missing (" + field.help + ")");
      }
    }
    return {};
  }

 private:
  void note_unknown(const std::string& key, Position at, const Schema& schema) {
    if (std::find(schema.passed_over.begin(), schema.passed_over.end(), key) != schema.passed_over.end()) {
      return;
    }
    std::vector<std::string> names;
    for (const Field& field : schema.fields) {
      names.emplace_back(field.key);
    }
    const std::string near = nearest_name(key, names);
    notices_.push_back(error_at(file_, at,
                                "the key '" + shown_text(key) + "' means nothing in " + schema.name +
                                    (near.empty() ? "" : "; did you mean '" + near + "'?"))
                           .message());
  }

  Result<void> check_value(const DocValue& value, const Field& field) {
    switch (field.type) {
      case Field::Type::kText:
        return check_text(value, field);
      case Field::Type::kTextOrNumber:
        return is_scalar(value) ? check_nul(value, field) : wrong(value, field, "text");
      case Field::Type::kInteger:
        return check_integer(value, field);
      case Field::Type::kBool:
        return value.kind == Kind::kBool ? Result<void>() : wrong(value, field, "true or false");
      case Field::Type::kMap:
        return check_map(value, *field.inner);
      case Field::Type::kTexts:
        return value.kind == Kind::kText ? check_nul(value, field) : check_list(value, field);
      case Field::Type::kMaps:
        return check_list(value, field);
      case Field::Type::kVariables:
        break;
    }
    return check_variables(value, field);
  }

  [[nodiscard]] Error wrong(const DocValue& value, const Field& field, const std::string& expected) const {
    return error_at(file_, value.at,
                    std::string(field.key) + ": expected " + expected + ", found " + value.described());
  }

  // No argument and no environment variable can hold a NUL character.
  [[nodiscard]] Result<void> check_nul(const DocValue& value, const Field& field) const {
    if (value.text.find('\0') != std::string::npos) {
      return error_at(file_, value.at, std::string(field.key) + ": a NUL character, which no text here can hold");
    }
    return {};
  }

  [[nodiscard]] Result<void> check_text(const DocValue& value, const Field& field) const {
    if (value.kind != Kind::kText) {
      return wrong(value, field, is_scalar(value) ? "text; write it in quotes" : "text");
    }
    const auto is_value = [&value](const char* word) { return is_same_word(value.text, word); };
    if (!field.words.empty() && std::none_of(field.words.begin(), field.words.end(), is_value)) {
      return wrong(value, field, listed(field.words));
    }
    return check_nul(value, field);
  }

  [[nodiscard]] Result<void> check_integer(const DocValue& value, const Field& field) const {
    const bool is_number = parse_number<std::int64_t>(value.text, field.least, field.most).has_value();
    if (value.kind != Kind::kInteger || !is_number) {
      return wrong(value, field,
                   "a whole number from " + std::to_string(field.least) + " to " + std::to_string(field.most) +
                       (is_number ? ", without quotes" : ""));
    }
    return {};
  }

  Result<void> check_list(const DocValue& value, const Field& field) {
    if (value.kind != Kind::kList) {
      return wrong(value, field,
                   field.type == Field::Type::kMaps ? "a list"
                   : is_scalar(value)               ? "text in quotes, or a list of texts"
                                                    : "text or a list of texts");
    }
    for (const DocValue& item : value.items) {
      if (field.type == Field::Type::kMaps) {
        HVD_TRY(check_map(item, *field.inner));
      } else if (is_scalar(item)) {
        HVD_TRY(check_nul(item, field));
      } else {
        return wrong(item, field, "a list of texts");
      }
    }
    return {};
  }

  [[nodiscard]] Result<void> check_variables(const DocValue& value, const Field& field) const {
    if (value.kind != Kind::kMap) {
      return wrong(value, field, "names with values");
    }
    for (const DocValue& item : value.items) {
      if (!is_scalar(item) && item.kind != Kind::kNull) {
        return wrong(item, field, "text");
      }
      HVD_TRY(check_nul(item, field));
    }
    return {};
  }

  const std::string& file_;
  Notices& notices_;
};

using Json = nlohmann::ordered_json;

Json schema_of(const Schema& schema);

Json schema_of(const Field& field) {
  const Json scalar = {{"type", {"string", "number", "boolean"}}};
  Json json;
  switch (field.type) {
    case Field::Type::kText:
      json["type"] = "string";
      if (!field.words.empty()) {
        json["enum"] = std::vector<std::string>(field.words.begin(), field.words.end());
      }
      break;
    case Field::Type::kTextOrNumber:
      json = scalar;
      break;
    case Field::Type::kInteger:
      json = {{"type", "integer"}, {"minimum", field.least}, {"maximum", field.most}};
      break;
    case Field::Type::kBool:
      json["type"] = "boolean";
      break;
    case Field::Type::kMap:
      json = schema_of(*field.inner);
      break;
    case Field::Type::kMaps:
      json = {{"type", "array"}, {"items", schema_of(*field.inner)}};
      break;
    case Field::Type::kTexts:
      json["type"] = {"string", "array"};
      json["items"] = scalar;
      break;
    case Field::Type::kVariables:
      json["type"] = "object";
      json["additionalProperties"]["type"] = {"string", "number", "boolean", "null"};
      break;
  }
  json["description"] = field.help;
  return json;
}

Json schema_of(const Schema& schema) {
  Json json;
  json["type"] = "object";
  Json required = Json::array();
  for (const Field& field : schema.fields) {
    json["properties"][field.key] = schema_of(field);
    if (field.is_required) {
      required.push_back(field.key);
    }
  }
  if (!required.empty()) {
    json["required"] = required;
  }
  json["additionalProperties"] = false;
  json["patternProperties"]["^\\$"] = Json::object();  // for other tools
  return json;
}

}  // namespace

Result<void> check(const DocValue& map, const Schema& schema, const std::string& file, Notices& notices) {
  return Checker(file, notices).check_map(map, schema);
}

void drop_unknown(DocValue& map, const Schema& schema) {
  for (std::size_t i = map.keys.size(); i-- > 0;) {
    const Field* field = field_of(schema, map.keys[i]);
    if (field == nullptr || map.keys[i].starts_with('$')) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      map.keys.erase(map.keys.begin() + at);
      map.key_at.erase(map.key_at.begin() + at);
      map.items.erase(map.items.begin() + at);
    } else if (field->type == Field::Type::kMap) {
      drop_unknown(map.items[i], *field->inner);
    } else if (field->type == Field::Type::kMaps) {
      for (DocValue& item : map.items[i].items) {
        drop_unknown(item, *field->inner);
      }
    }
  }
}

std::string json_schema(const Schema& schema, const std::string& title) {
  Json json;
  json["$schema"] = "http://json-schema.org/draft-07/schema#";
  json["title"] = title;
  json.update(schema_of(schema));
  json["properties"]["$schema"] = {{"type", "string"}};
  return json.dump(2) + "\n";
}

}  // namespace hvd::launch
