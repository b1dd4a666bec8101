#include "runtime/core/tuning_table.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace hvd {
namespace {

constexpr std::uint64_t kTableVersion = 1;
constexpr std::uint64_t kMaxRanks = 1U << 20U;
constexpr const char* kVersionKey = "hvd_tuning";
constexpr const char* kProcessorKey = "processor";
constexpr std::pair<const char*, int TunedPlace::*> kCounts[] = {
    {"ranks", &TunedPlace::ranks}, {"nodes", &TunedPlace::nodes}, {"ranks_per_node", &TunedPlace::ranks_per_node}};

struct Member {
  std::string key;
  std::variant<std::uint64_t, std::string> value;
  int line = 1;
};

// Reader parses a JSON object of whole numbers and of texts whose only escapes are \" and \\; such a file has nothing
// else.
class Reader {
 public:
  Reader(std::string_view text, std::string where) : rest_(text), where_(std::move(where)) {}

  Result<std::vector<Member>> object() {
    std::vector<Member> members;
    HVD_TRY(expect('{'));
    skip_space();
    while (members.empty() ? !rest_.starts_with('}') : rest_.starts_with(',')) {
      if (!members.empty()) {
        rest_.remove_prefix(1);
      }
      HVD_TRY_ASSIGN(Member next, member());
      if (std::any_of(members.begin(), members.end(), [&](const Member& m) { return m.key == next.key; })) {
        return wrong("'" + next.key + "' is there twice", next.line);
      }
      members.push_back(std::move(next));
      skip_space();
    }
    HVD_TRY(expect('}'));
    skip_space();
    if (!rest_.empty()) {
      return wrong("there is more behind the table's '}'");
    }
    return members;
  }

  [[nodiscard]] Error wrong(const std::string& what, int line) const {
    return {Code::kInvalid, where_ + ":" + std::to_string(line) + ": " + what};
  }
  [[nodiscard]] Error wrong(const std::string& what) const { return wrong(what, line_); }

 private:
  void skip_space() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != std::string_view::npos) {
      line_ += rest_.front() == '\n' ? 1 : 0;
      rest_.remove_prefix(1);
    }
  }

  Result<void> expect(char mark) {
    skip_space();
    if (!rest_.starts_with(mark)) {
      return wrong(std::string("expected '") + mark + "'; hvdrun bench --tune writes such a file");
    }
    rest_.remove_prefix(1);
    return {};
  }

  Result<Member> member() {
    Member member;
    skip_space();
    member.line = line_;
    HVD_TRY_ASSIGN(member.key, text());
    HVD_TRY(expect(':'));
    skip_space();
    member.line = line_;
    if (rest_.starts_with('"')) {
      HVD_TRY_ASSIGN(member.value, text());
      return member;
    }
    std::uint64_t number = 0;
    const auto [end, failed] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    const std::string_view digits = rest_.substr(0, static_cast<std::size_t>(end - rest_.data()));
    const bool has_zeros = digits.size() > 1 && digits.front() == '0';
    rest_.remove_prefix(digits.size());
    const bool goes_on = !rest_.empty() && std::string_view(",} \t\r\n").find(rest_.front()) == std::string_view::npos;
    if (failed != std::errc() || has_zeros || goes_on) {
      return wrong("'" + member.key + "' is neither a whole number nor a text");
    }
    member.value = number;
    return member;
  }

  Result<std::string> text() {
    HVD_TRY(expect('"'));
    std::string text;
    for (bool is_escaped = false; !rest_.empty(); rest_.remove_prefix(1)) {
      const char c = rest_.front();
      if (!is_escaped && c == '"') {
        rest_.remove_prefix(1);
        return text;
      }
      if (static_cast<unsigned char>(c) < 0x20 || (is_escaped && c != '"' && c != '\\')) {
        break;
      }
      is_escaped = !is_escaped && c == '\\';
      text.append(is_escaped ? 0 : 1, c);
    }
    return wrong("a text has no end, or what it cannot hold");
  }

  std::string_view rest_;
  const std::string where_;
  int line_ = 1;
};

std::string known_keys() {
  std::string text = kVersionKey;
  for (const auto& [name, count] : kCounts) {
    text += std::string(", ") + name;
  }
  text += std::string(", ") + kProcessorKey;
  for (const TuningField& field : tuning_fields()) {
    text += std::string(", ") + field.name;
  }
  return text;
}

Result<std::uint64_t> number_of(const Reader& reader, const Member& member, std::uint64_t least, std::uint64_t most) {
  const auto* number = std::get_if<std::uint64_t>(&member.value);
  if (number == nullptr || *number < least || *number > most) {
    return reader.wrong(
        "'" + member.key + "' is " +
            (number == nullptr ? "'" + std::get<std::string>(member.value) + "'" : std::to_string(*number)) +
            ", expected a number from " + std::to_string(least) + " to " + std::to_string(most),
        member.line);
  }
  return *number;
}

Result<void> take(const Reader& reader, const Member& member, TuningTable& table) {
  if (member.key == kVersionKey) {
    const auto* version = std::get_if<std::uint64_t>(&member.value);
    if (version == nullptr || *version != kTableVersion) {
      return reader.wrong("this is a table of another version of hvdrun; make one with its bench --tune", member.line);
    }
    return {};
  }
  if (member.key == kProcessorKey) {
    const auto* processor = std::get_if<std::string>(&member.value);
    if (processor == nullptr) {
      return reader.wrong(std::string("'") + kProcessorKey + "' is no text", member.line);
    }
    table.place.processor = *processor;
    return {};
  }
  for (const auto& [name, count] : kCounts) {
    if (member.key == name) {
      HVD_TRY_ASSIGN(const std::uint64_t number, number_of(reader, member, 1, kMaxRanks));
      table.place.*count = static_cast<int>(number);
      return {};
    }
  }
  for (const TuningField& field : tuning_fields()) {
    if (member.key == field.name) {
      HVD_TRY_ASSIGN(table.tuning.*field.value, number_of(reader, member, field.least, field.most));
      if (const auto checked = check(table.tuning); !checked.ok()) {
        return reader.wrong(checked.error().message(), member.line);
      }
      return {};
    }
  }
  return reader.wrong("'" + member.key + "' is no key of a tuning table; these are: " + known_keys(), member.line);
}

bool is_plain(char c) {
  return static_cast<unsigned char>(c) >= 0x20;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (is_plain(c)) {
      out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return out + "\"";
}

}  // namespace

TunedPlace place_of(const RankMap& map, std::string processor) {
  processor.erase(std::remove_if(processor.begin(), processor.end(), [](char c) { return !is_plain(c); }),
                  processor.end());
  return {map.size, map.node_count, map.local_size, std::move(processor)};
}

std::string text_of(const TunedPlace& place) {
  return std::to_string(place.ranks) + " ranks on " + std::to_string(place.nodes) +
         (place.nodes == 1 ? " node, " : " nodes, ") + std::to_string(place.ranks_per_node) + " on the first, with " +
         place.processor;
}

Result<TuningTable> parse_tuning_table(std::string_view text, const std::string& where) {
  Reader reader(text, where);
  HVD_TRY_ASSIGN(const std::vector<Member> members, reader.object());
  TuningTable table;
  for (const Member& member : members) {
    HVD_TRY(take(reader, member, table));
  }
  for (const char* required : {kVersionKey, kCounts[0].first, kCounts[1].first, kCounts[2].first, kProcessorKey}) {
    if (std::none_of(members.begin(), members.end(), [&](const Member& m) { return m.key == required; })) {
      return reader.wrong(std::string("'") + required + "' is missing; hvdrun bench --tune writes it");
    }
  }
  return table;
}

std::string to_json(const TuningTable& table) {
  std::string text = std::string("{\n  \"") + kVersionKey + "\": " + std::to_string(kTableVersion);
  for (const auto& [name, count] : kCounts) {
    text += std::string(",\n  \"") + name + "\": " + std::to_string(table.place.*count);
  }
  text += std::string(",\n  \"") + kProcessorKey + "\": " + quoted(table.place.processor);
  for (const TuningField& field : tuning_fields()) {
    text += std::string(",\n  \"") + field.name + "\": " + std::to_string(table.tuning.*field.value);
  }
  return text + "\n}\n";
}

}  // namespace hvd
