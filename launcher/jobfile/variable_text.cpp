#include "launcher/jobfile/variable_text.h"

#include <algorithm>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::size_t name_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size() && (begins_name(text[end]) || (end > begin && text[end] >= '0' && text[end] <= '9'))) {
    ++end;
  }
  return end;
}

}  // namespace

std::vector<TextPiece> split_variables(std::string_view text) {
  std::vector<TextPiece> pieces;
  std::string plain;
  const auto take = [&](std::string_view name) {
    if (!plain.empty()) {
      pieces.push_back({false, std::move(plain)});
      plain.clear();
    }
    pieces.push_back({true, std::string(name)});
  };
  for (std::size_t i = 0; i < text.size();) {
    const bool has_brace = text.substr(i).starts_with("${");
    const std::size_t begin = i + (has_brace ? 2 : 1);
    const std::size_t end = text[i] == '$' ? name_end(text, begin) : begin;
    const bool is_closed = !has_brace || (end < text.size() && text[end] == '}');
    if (text[i] == '$' && end > begin && is_closed) {
      take(text.substr(begin, end - begin));
      i = end + (has_brace ? 1 : 0);
    } else {
      plain += text[i++];
    }
  }
  if (!plain.empty()) {
    pieces.push_back({false, std::move(plain)});
  }
  return pieces;
}

std::string quote_with_variables(std::string_view text) {
  std::string word;
  for (const TextPiece& piece : split_variables(text)) {
    word += piece.is_variable ? "\"${" + piece.text + "-}\"" : quoted_word(piece.text);
  }
  return word.empty() ? "''" : word;
}

std::string expand_variables(std::string_view text,
                             const std::function<std::optional<std::string>(const std::string& name)>& value_of,
                             std::vector<std::string>& missing) {
  std::string expanded;
  for (const TextPiece& piece : split_variables(text)) {
    if (!piece.is_variable) {
      expanded += piece.text;
    } else if (const auto value = value_of(piece.text)) {
      expanded += *value;
    } else {
      missing.push_back(piece.text);
    }
  }
  return expanded;
}

namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kShellWords = ";|&<>()`";
constexpr std::string_view kPatterns = "*?";

// ArgumentReader reads the words one after the other: parts without quotes, in single and in double quotes.
class ArgumentReader {
 public:
  explicit ArgumentReader(std::string_view text) : rest_(text) {}

  Result<ArgumentWords> read() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (kSpaces.find(c) != std::string_view::npos) {
        rest_.remove_prefix(1);
        is_inside_ = false;
      } else if (c == '\'' || c == '"') {
        HVD_TRY(read_quoted(c));
      } else {
        read_plain();
      }
    }
    return std::move(words_);
  }

 private:
  // `bytes` is the length of the part that the program gets, without variables.
  void add(const std::string& part, std::size_t bytes) {
    if (!is_inside_ && !words_.shell_text.empty()) {
      words_.shell_text += ' ';
    }
    size_ = (is_inside_ ? size_ : 0) + bytes;
    words_.longest = std::max(words_.longest, size_);
    is_inside_ = true;
    words_.shell_text += part;
  }

  Result<void> read_quoted(char quote) {
    std::string inside;
    std::size_t i = 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      const bool is_escape = quote == '"' && rest_[i] == '\\' && i + 1 < rest_.size() &&
                             std::string_view("$`\"\\").find(rest_[i + 1]) != std::string_view::npos;
      const std::size_t newline = quote == '"' && rest_[i] == '\\' ? newline_at(i + 1) : 0;
      if (newline > 0) {
        i += newline;
      } else if (is_escape) {
        add_quoted(inside, quote);
        inside.clear();
        add(quoted_word(rest_.substr(++i, 1)), 1);
      } else {
        inside += rest_[i];
      }
    }
    if (i >= rest_.size()) {
      return Error(Code::kInvalid, std::string("a ") + quote + " has no second one");
    }
    add_quoted(inside, quote);
    rest_.remove_prefix(i + 1);
    return {};
  }

  // The bytes of the end of a line there; 0 where none is.
  [[nodiscard]] std::size_t newline_at(std::size_t at) const {
    const std::string_view text = rest_.substr(std::min(at, rest_.size()));
    return text.starts_with("\r\n") ? 2 : text.starts_with('\n') ? 1 : 0;
  }

  void add_quoted(const std::string& text, char quote) {
    if (quote == '\'') {
      return add(quoted_word(text), text.size());
    }
    std::size_t bytes = 0;
    for (const TextPiece& piece : split_variables(text)) {
      bytes += piece.is_variable ? 0 : piece.text.size();
    }
    add(quote_with_variables(text), bytes);
  }

  void read_plain() {
    const std::size_t end = std::min(rest_.find_first_of(" \t\r\n'\"\\"), rest_.size());
    if (end == 0) {  // a backslash
      rest_.remove_prefix(1);
      if (const std::size_t newline = newline_at(0); newline > 0) {
        rest_.remove_prefix(newline);  // the line goes on in the next one
      } else if (!rest_.empty()) {
        add(quoted_word(rest_.substr(0, 1)), 1);
        rest_.remove_prefix(1);
      }
      return;
    }
    std::string_view part = rest_.substr(0, end);
    const bool is_word = end == rest_.size() || kSpaces.find(rest_[end]) != std::string_view::npos;
    if (!is_inside_ && (part.starts_with("~/") || (part == "~" && is_word))) {
      add("\"${HOME-}\"", 0);
      part.remove_prefix(1);
    }
    for (const TextPiece& piece : split_variables(part)) {
      if (piece.is_variable) {
        // Outside of quotes a shell splits a variable's value into words, and so does the shell text made here.
        add("${" + piece.text + "-}", 0);
      } else {
        words_.is_plain = words_.is_plain && piece.text.find_first_of(kShellWords) == std::string::npos;
        add(quote_with_patterns(piece.text), piece.text.size());
      }
    }
    rest_.remove_prefix(end);
  }

  std::string quote_with_patterns(std::string_view text) {
    std::string word;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find_first_of(kPatterns), text.size());
      word += end > 0 ? quoted_word(text.substr(0, end)) : std::string(text.substr(0, 1));
      words_.has_pattern = words_.has_pattern || end == 0;
      text.remove_prefix(std::max<std::size_t>(end, 1));
    }
    return word;
  }

  std::string_view rest_;
  ArgumentWords words_;
  bool is_inside_ = false;  // true inside a word
  std::size_t size_ = 0;    // bytes of that word
};

}  // namespace

std::string argument_of(std::string_view word) {
  std::string text = "\"";
  for (const char c : word) {
    text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return text + "\"";
}

Result<ArgumentWords> read_arguments(std::string_view text) {
  return ArgumentReader(text).read();
}

}  // namespace hvd::launch
