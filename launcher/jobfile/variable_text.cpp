#include "launcher/jobfile/variable_text.h"

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

std::string quote_word(std::string_view text) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+";
  if (!text.empty() && text.find_first_not_of(kSafe) == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

std::string quote_with_variables(std::string_view text) {
  std::string word;
  for (const TextPiece& piece : split_variables(text)) {
    word += piece.is_variable ? "\"${" + piece.text + "-}\"" : quote_word(piece.text);
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

}  // namespace hvd::launch
