#include <algorithm>
#include <iterator>
#include <memory>

#include <nlohmann/json.hpp>

#include "launcher/jobfile/document.h"

namespace hvd::launch {
namespace {

// CountingIterator counts what the parser has taken. Values need this for their positions, because nlohmann-json gives
// a SAX handler none.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  std::size_t* taken_;
};

class JsonTreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonTreeBuilder(std::string_view text, const std::string& file, const std::size_t* taken)
      : text_(text), file_(file), taken_(taken) {}

  bool null() override { return add(DocValue::Kind::kNull, ""); }
  bool boolean(bool value) override { return add(DocValue::Kind::kBool, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add(DocValue::Kind::kInteger, std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return add(DocValue::Kind::kInteger, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& written) override { return add(DocValue::Kind::kReal, written); }
  bool string(string_t& value) override { return add(DocValue::Kind::kText, value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(DocValue::Kind::kMap); }
  bool start_array(std::size_t) override { return open(DocValue::Kind::kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    DocValue& map = *open_.back();
    const Position at = next_position();
    if (const auto same = std::find(map.keys.begin(), map.keys.end(), name); same != map.keys.end()) {
      const Position first = map.key_at[static_cast<std::size_t>(same - map.keys.begin())];
      return refuse(
          at, "the key '" + shown_text(name) + "' is given twice (first in line " + std::to_string(first.line) + ")");
    }
    if (map.keys.size() >= kMostDocKeys) {
      return refuse(at, "more than " + std::to_string(kMostDocKeys) + " keys");
    }
    map.keys.push_back(name);
    map.key_at.push_back(at);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& why) override {
    // The parser also counts the byte that it refused.
    return refuse(position_of(std::min(position > 0 ? position - 1 : 0, text_.size())), explain(position, why.what()));
  }

  Result<DocValue> result(bool parsed) {
    if (!parsed) {
      return error_.message().empty() ? Error(Code::kInvalid, file_ + ": not JSON") : error_;
    }
    return std::move(root_);
  }

 private:
  bool refuse(Position at, const std::string& what) {
    error_ = error_at(file_, at, what);
    return false;
  }

  bool add(DocValue::Kind kind, std::string value) {
    if (++count_ > kMostDocValues) {
      return refuse(next_position(), "more than " + std::to_string(kMostDocValues) + " values");
    }
    DocValue& slot = open_.empty() ? root_ : open_.back()->items.emplace_back();
    slot.kind = kind;
    slot.at = next_position();
    slot.text = std::move(value);
    return true;
  }

  // The parents of an open value get no further item before it is closed, so pointers to them stay valid.
  bool open(DocValue::Kind kind) {
    if (open_.size() >= static_cast<std::size_t>(kMostDocDepth)) {
      return refuse(next_position(), "nested more than " + std::to_string(kMostDocDepth) + " deep");
    }
    if (!add(kind, "")) {
      return false;
    }
    open_.push_back(open_.empty() ? &root_ : &open_.back()->items.back());
    return true;
  }

  bool close() {
    open_.pop_back();
    before_ = *taken_;
    return true;
  }

  // Returns the position of the token that was just taken: between two tokens there is only white space, ':' and ','.
  Position next_position() {
    std::size_t begin = before_;
    while (begin < text_.size() &&
           std::string_view(" \t\r\n:,\xef\xbb\xbf").find(text_[begin]) != std::string_view::npos) {
      ++begin;
    }
    before_ = *taken_;
    // Count on from the last token: from the beginning each time would take quadratic time.
    for (; counted_ < begin; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    }
    return {line_, static_cast<int>(begin - line_begin_) + 1};
  }

  [[nodiscard]] Position position_of(std::size_t offset) const {
    const std::string_view before = text_.substr(0, offset);
    const auto newline = before.rfind('\n');
    return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
            static_cast<int>(offset - (newline == std::string_view::npos ? 0 : newline + 1)) + 1};
  }

  // Explains a common error in our own words; otherwise returns the parser's message without its prefix.
  [[nodiscard]] std::string explain(std::size_t position, std::string_view why) const {
    const std::string_view before = text_.substr(0, std::min(position > 0 ? position - 1 : 0, text_.size()));
    const auto last = before.find_last_not_of(" \t\r\n");
    const char found = position > 0 && position <= text_.size() ? text_[position - 1] : '\0';
    if ((found == '}' || found == ']') && last != std::string_view::npos && before[last] == ',') {
      return std::string("a comma before '") + found + "'; JSON has none after the last entry";
    }
    if (found == '/' || found == '#') {
      return "JSON has no comments";
    }
    if (position > text_.size()) {
      return "the file ends in the middle of a value; is a bracket or quote missing?";
    }
    const auto dash = why.find(" - ");
    return "not JSON: " + shown_text(dash == std::string_view::npos ? why : why.substr(dash + 3));
  }

  const std::string_view text_;
  const std::string& file_;
  const std::size_t* taken_;
  std::size_t before_ = 0;   // bytes taken when the last token ended
  std::size_t counted_ = 0;  // bytes that line_ accounts for
  int line_ = 1;
  std::size_t line_begin_ = 0;
  std::size_t count_ = 0;
  DocValue root_;
  std::vector<DocValue*> open_;
  Error error_{Code::kInvalid, ""};
};

}  // namespace

Result<DocValue> parse_json_document(std::string_view text, const std::string& file) {
  std::size_t taken = 0;
  JsonTreeBuilder builder(text, file, &taken);
  const bool parsed = nlohmann::json::sax_parse(CountingIterator(text.data(), &taken),
                                                CountingIterator(text.data() + text.size(), &taken), &builder);
  return builder.result(parsed);
}

}  // namespace hvd::launch
