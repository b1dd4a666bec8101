#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <string>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "launcher/jobfile/document.h"

namespace hvd::launch {
namespace {

Position position_of(const YAML::Mark& mark) {
  return {std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view without_sign(std::string_view text) {
  return !text.empty() && (text.front() == '-' || text.front() == '+') ? text.substr(1) : text;
}

bool is_real(std::string_view text) {
  text = without_sign(text);
  const auto exponent = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, exponent);
  const auto dot = mantissa.find('.');
  std::string digits(mantissa.substr(0, dot));
  if (dot != std::string_view::npos) {
    digits += mantissa.substr(dot + 1);
  }
  return is_digits(digits) &&
         (exponent == std::string_view::npos || is_digits(without_sign(text.substr(exponent + 1))));
}

// Returns the type of a scalar without quotes in YAML 1.2's core schema. Octal and hexadecimal numbers stay text, since
// nobody means them here.
DocValue::Kind kind_of_plain(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return DocValue::Kind::kNull;
  }
  if (text == "true" || text == "True" || text == "TRUE" || text == "false" || text == "False" || text == "FALSE") {
    return DocValue::Kind::kBool;
  }
  if (is_digits(without_sign(text))) {
    return DocValue::Kind::kInteger;
  }
  return is_real(text) ? DocValue::Kind::kReal : DocValue::Kind::kText;
}

constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

// yaml-cpp gives "?" to a value without a tag, and "!" to one in quotes.
bool is_known_tag(std::string_view tag) {
  constexpr std::array<std::string_view, 7> kCore = {"str", "int", "float", "bool", "null", "seq", "map"};
  return tag.empty() || tag == "?" || tag == "!" ||
         (tag.starts_with(kCoreTag) &&
          std::find(kCore.begin(), kCore.end(), tag.substr(kCoreTag.size())) != kCore.end());
}

std::string short_tag(std::string_view tag) {
  return tag.starts_with(kCoreTag) ? "!!" + std::string(tag.substr(kCoreTag.size())) : std::string(tag);
}

// Explains a common error in our own words; otherwise returns the parser's message.
std::string explain(const YAML::Exception& error, std::string_view text) {
  for (int line = 0; line < error.mark.line && !text.empty(); ++line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const std::string_view indent = text.substr(0, text.find_first_not_of(" \t"));
  if (indent.find('\t') != std::string_view::npos) {
    return "the line begins with a tab; YAML is indented with spaces";
  }
  if (error.msg == "illegal map value") {
    return "not YAML: a ':' where none can be; indent the keys of one map alike, and put a text with ': ' in quotes";
  }
  if (error.msg.starts_with("end of sequence flow") || error.msg.starts_with("end of map flow")) {
    return "not YAML: a '[' or '{', or a quote, has no end";
  }
  return "not YAML: " + shown_text(error.msg);
}

class YamlTreeBuilder {
 public:
  explicit YamlTreeBuilder(const std::string& file) : file_(file) {}

  // An alias is copied wherever it is used. The limits also bound what aliases of aliases can grow to.
  Result<DocValue> build(const YAML::Node& node, int depth) {
    const Position at = position_of(node.Mark());
    if (depth > kMostDocDepth || ++count_ > kMostDocValues) {
      return error_at(file_, at,
                      "more than " + std::to_string(kMostDocValues) + " values, or nested more than " +
                          std::to_string(kMostDocDepth) + " deep");
    }
    if (!is_known_tag(node.Tag())) {
      return error_at(file_, at,
                      "the tag '" + shown_text(short_tag(node.Tag())) + "' means nothing here; write the value itself");
    }
    DocValue value;
    value.at = at;
    if (node.IsScalar()) {
      const bool is_plain = node.Tag() == "?";
      value.kind = is_plain ? kind_of_plain(node.Scalar()) : DocValue::Kind::kText;
      value.text = node.Scalar();
    } else if (node.IsSequence()) {
      value.kind = DocValue::Kind::kList;
      for (const auto& item : node) {
        HVD_TRY_ASSIGN(DocValue built, build(item, depth + 1));
        value.items.push_back(std::move(built));
      }
    } else if (node.IsMap()) {
      HVD_TRY(build_map(node, depth, value));
    }
    return value;
  }

 private:
  Result<void> build_map(const YAML::Node& node, int depth, DocValue& map) {
    map.kind = DocValue::Kind::kMap;
    for (const auto& entry : node) {
      const Position at = position_of(entry.first.Mark());
      if (!entry.first.IsScalar()) {
        return error_at(file_, at, "expected a name as key");
      }
      const std::string& name = entry.first.Scalar();
      if (std::find(map.keys.begin(), map.keys.end(), name) != map.keys.end()) {
        return error_at(file_, at, "the key '" + shown_text(name) + "' is given twice");
      }
      if (map.keys.size() >= kMostDocKeys) {
        return error_at(file_, at, "more than " + std::to_string(kMostDocKeys) + " keys");
      }
      HVD_TRY_ASSIGN(DocValue built, build(entry.second, depth + 1));
      map.keys.push_back(name);
      map.key_at.push_back(at);
      map.items.push_back(std::move(built));
    }
    return {};
  }

  const std::string& file_;
  std::size_t count_ = 0;
};

// DocumentStarts finds where the second of two documents begins, and ignores everything else.
class DocumentStarts final : public YAML::EventHandler {
 public:
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] const YAML::Mark& last() const { return last_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    ++count_;
    last_ = mark;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  int count_ = 0;
  YAML::Mark last_;
};

}  // namespace

Result<DocValue> parse_yaml_document(std::string_view text, const std::string& file) {
  try {
    // YAML::LoadAll is not used: after a document followed by text that begins no other (such as "} }"), it makes empty
    // documents until memory runs out.
    std::istringstream input{std::string(text)};
    YAML::Parser parser(input);
    DocumentStarts starts;
    while (starts.count() < 2 && parser.HandleNextDocument(starts)) {
    }
    if (starts.count() > 1) {
      return error_at(file, position_of(starts.last()), "a second document; a job file has one");
    }
    if (starts.count() == 0) {
      return error_at(file, {1, 1}, "the file is empty; expected keys with their values");
    }
    return YamlTreeBuilder(file).build(YAML::Load(std::string(text)), 0);
  } catch (const YAML::Exception& error) {
    return error_at(file, position_of(error.mark), explain(error, text));
  }
}

}  // namespace hvd::launch
