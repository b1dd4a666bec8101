#include "launcher/job/hidden_texts.h"

#include <algorithm>
#include <set>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kMask = "***";
constexpr std::size_t kShortest = 4;  // what is shorter may be an ordinary word

// Returns the text as it stands between these quotation marks, in JSON and in Python.
std::string quoted_by(char mark, std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    quoted += c == '\\' || c == mark ? std::string("\\") + c : std::string(1, c);
  }
  return quoted;
}

// The same in a shell's text.
std::string quoted_by_shell(std::string_view text) {
  std::string quoted = quoted_word(text);
  return quoted.starts_with('\'') ? quoted.substr(1, quoted.size() - 2) : quoted;
}

void add_forms(const std::string& text, std::set<std::string>& forms) {
  std::string spaced = text;  // as one_line() of runtime/rendezvous/failure_news.h makes it
  std::replace_if(
      spaced.begin(), spaced.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  for (const std::string& form : {text, spaced, without_controls(text), without_controls(text, "\n\t")}) {
    forms.insert({form, quoted_by('\\', form), quoted_by('"', form), quoted_by('\'', form), quoted_by_shell(form)});
  }
}

}  // namespace

std::vector<std::string> hidden_texts(const std::vector<std::string>& secrets) {
  std::set<std::string> forms;
  for (const std::string& secret : secrets) {
    add_forms(secret, forms);
    std::string_view rest = secret;
    while (!rest.empty()) {
      std::string_view line = take_until(rest, '\n');
      line.remove_suffix(line.ends_with('\r') ? 1 : 0);
      add_forms(std::string(line), forms);
    }
  }
  std::erase_if(forms, [](const std::string& text) { return text.size() < kShortest; });
  std::vector<std::string> texts(forms.begin(), forms.end());
  std::stable_sort(texts.begin(), texts.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return texts;
}

std::string masked(std::string_view text, const std::vector<std::string>& hidden) {
  std::string shown(text);
  for (const std::string& secret : hidden) {
    for (auto at = shown.find(secret); at != std::string::npos; at = shown.find(secret, at + kMask.size())) {
      shown.replace(at, secret.size(), kMask);
    }
  }
  return shown;
}

std::size_t begun_at_end(std::string_view text, std::string_view secret) {
  std::size_t size = std::min(secret.size(), text.size());
  while (!text.ends_with(secret.substr(0, size))) {
    --size;
  }
  return size;
}

std::string masked_at_cut(std::string_view text, const std::vector<std::string>& hidden) {
  std::string shown = masked(text, hidden);
  for (const std::string& secret : hidden) {
    if (const std::size_t size = begun_at_end(shown, secret); size >= kShortest) {
      shown.replace(shown.size() - size, size, kMask);
    }
  }
  return shown;
}

}  // namespace hvd::launch
