#include "launcher/jobfile/document.h"

#include <algorithm>

namespace hvd::launch {

const DocValue* DocValue::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) {
      return items[i].kind == Kind::kNull ? nullptr : &items[i];
    }
  }
  return nullptr;
}

std::string DocValue::described() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing (null)";
    case Kind::kBool:
    case Kind::kInteger:
      return text;
    case Kind::kReal:
      return "the number " + text;
    case Kind::kText:
      return "the text '" + shown_text(text) + "'";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      break;
  }
  return "keys with values";
}

Result<DocValue> parse_document(std::string_view text, const std::string& file) {
  if (text.size() > kMostJobFileBytes) {
    return Error(Code::kInvalid, file + ": more than " + std::to_string(kMostJobFileBytes) +
                                     " bytes, which no job file needs; put data into files of its own");
  }
  if (file.ends_with(".yaml") || file.ends_with(".yml")) {
    return parse_yaml_document(text, file);
  }
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return error_at(file, {1, 1}, "the text is UTF-16, as PowerShell's > writes it; save it as UTF-8");
  }
  const auto first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) {
    return error_at(file, {1, 1}, "the file is empty; expected keys with their values");
  }
  const bool looks_like_json = text[first] == '{';
  return file.ends_with(".json") || looks_like_json ? parse_json_document(text, file) : parse_yaml_document(text, file);
}

Error error_at(const std::string& file, Position at, const std::string& what) {
  return error_at(file, at, Error(Code::kInvalid, what));
}

Error error_at(const std::string& file, Position at, const Error& why) {
  return why.with_context(file + ":" + std::to_string(at.line) + ":" + std::to_string(at.column));
}

}  // namespace hvd::launch
