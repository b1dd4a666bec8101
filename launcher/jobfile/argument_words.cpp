#include "launcher/jobfile/argument_words.h"

#include <algorithm>

#include "launcher/jobfile/variable_text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kShellWords = ";|&<>()`";

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
      if (is_escape) {
        add_quoted(inside, quote);
        inside.clear();
        add(quote_word(rest_.substr(++i, 1)), 1);
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

  void add_quoted(const std::string& text, char quote) {
    if (quote == '\'') {
      return add(quote_word(text), text.size());
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
      if (!rest_.empty()) {
        add(quote_word(rest_.substr(0, 1)), 1);
        rest_.remove_prefix(1);
      }
      return;
    }
    for (const TextPiece& piece : split_variables(rest_.substr(0, end))) {
      const bool is_plain = piece.text.find_first_of(kShellWords) == std::string::npos;
      words_.is_plain = words_.is_plain && (piece.is_variable || is_plain);
      // Outside of quotes a shell splits a variable's value into words, and so does the shell text made here.
      add(piece.is_variable ? "${" + piece.text + "-}" : quote_word(piece.text),
          piece.is_variable ? 0 : piece.text.size());
    }
    rest_.remove_prefix(end);
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
