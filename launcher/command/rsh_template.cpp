#include "launcher/command/rsh_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/transport/ssh_config.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

// Reads the text from a quote or backslash on, and adds what it means to `word`. Returns where it ends; npos: it does
// not end.
std::size_t read_quoted(std::string_view text, std::size_t at, std::string& word) {
  const char quote = text[at++];
  if (quote == '\\') {
    if (at == text.size()) {
      return std::string_view::npos;
    }
    word += text[at] == '\n' ? "" : std::string(1, text[at]);
    return at + 1;
  }
  while (at < text.size() && text[at] != quote) {
    // Inside "..." a backslash stands for itself, unless a character follows that it protects there.
    constexpr std::string_view kProtected = "$`\"\\\n";
    if (quote == '"' && text[at] == '\\' && at + 1 < text.size() &&
        kProtected.find(text[at + 1]) != std::string_view::npos) {
      ++at;
      word += text[at] == '\n' ? "" : std::string(1, text[at]);
    } else {
      word += text[at];
    }
    ++at;
  }
  return at < text.size() ? at + 1 : std::string_view::npos;
}

using Values = std::array<std::pair<std::string_view, std::string>, 3>;

// There is only one pass, so that a value that looks like a placeholder stays what it is.
std::string filled(const std::string& word, const Values& values) {
  std::string out;
  for (std::size_t at = 0; at < word.size();) {
    const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) {
      return std::string_view(word).substr(at).starts_with(value.first);
    });
    if (found == values.end()) {
      out += word[at++];
    } else {
      out += found->second;
      at += found->first.size();
    }
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> split_shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_in_word = false;  // "" is a word too
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\'' || c == '"' || c == '\\') {
      is_in_word = true;
      at = read_quoted(text, at, word);
      if (at == std::string_view::npos) {
        return Error(Code::kInvalid, std::string("nothing follows the last ") + c + " in it; expected its end");
      }
      continue;
    }
    ++at;
    if (!is_blank(c)) {
      word += c;
      is_in_word = true;
    } else if (is_in_word) {
      words.push_back(std::exchange(word, ""));
      is_in_word = false;
    }
  }
  if (is_in_word) {
    words.push_back(std::move(word));
  }
  return words;
}

std::string shown_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + quoted_word(word, "={}");
  }
  return text.size() <= kMaxShownBytes ? text : text.substr(0, kMaxShownBytes) + "...";
}

Result<RshTemplate> RshTemplate::parse(std::string_view text) {
  auto words = split_shell_words(text);
  if (!words.ok()) {
    return words.error().with_context("--rsh '" + std::string(text) + "'");
  }
  if (words.value().empty() || words.value().front().empty()) {
    return Error(Code::kInvalid, "--rsh is empty; expected a command, as in --rsh 'ssh {host}'");
  }
  return RshTemplate(std::move(words).value());
}

bool RshTemplate::has(std::string_view placeholder) const {
  return std::any_of(words_.begin(), words_.end(),
                     [placeholder](const std::string& word) { return word.find(placeholder) != std::string::npos; });
}

Result<std::vector<std::string>> RshTemplate::words(const NodeTarget& target, const Defaults& defaults) const {
  HVD_TRY(check_ssh_request({target.host, target.user, target.port, "", ""}));
  if (!target.user.empty() && !has("{user}")) {
    return Error(Code::kInvalid, target.host + ": the host list says user '" + target.user +
                                     "', but --rsh has no {user}; as in --rsh 'ssh -l {user} {host}'");
  }
  if (target.port != 0 && !has("{port}")) {
    return Error(Code::kInvalid, target.host + ": the host list says port " + std::to_string(target.port) +
                                     ", but --rsh has no {port}; as in --rsh 'ssh -p {port} {host}'");
  }
  const Values values = {std::pair{std::string_view("{host}"), target.host},
                         {"{user}", target.user.empty() ? defaults.user : target.user},
                         {"{port}", std::to_string(target.port != 0 ? target.port : defaults.port)}};
  std::vector<std::string> words;
  for (const std::string& word : words_) {
    words.push_back(filled(word, values));
  }
  if (!has("{host}")) {
    words.push_back(target.host);
  }
  return words;
}

}  // namespace hvd::launch
