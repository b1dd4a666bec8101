// RshTemplate turns the user's --rsh COMMAND into the words that are executed for one host. Pure; value type.
//
// It is split into words as a POSIX shell splits quotes and backslashes; nothing is expanded and no shell runs. {host},
// {user} and {port} are replaced in the words. Without {host}, the host becomes the last word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/transport/transport.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Returns the words of text with quotes and backslashes, or an Error for a quote that is not closed.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

// This is "ssh -o 'A b' node1" for messages, which show only the beginning of a longer command.
inline constexpr std::size_t kMaxShownBytes = 300;
std::string shown_words(const std::vector<std::string>& words);

class RshTemplate {
 public:
  static Result<RshTemplate> parse(std::string_view text);

  // These are {user} and {port} for a host that has none of its own.
  struct Defaults {
    std::string user;
    int port = 22;
  };
  // Refuses a host that a program would take for an option. Refuses a user or port that the template has no place for:
  // without them we would log in as somebody else, or at another node.
  [[nodiscard]] Result<std::vector<std::string>> words(const NodeTarget& target, const Defaults& defaults) const;
  // Returns the program, before any replacement.
  [[nodiscard]] const std::string& program() const { return words_.front(); }
  [[nodiscard]] bool has(std::string_view placeholder) const;

 private:
  explicit RshTemplate(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<std::string> words_;
};

}  // namespace hvd::launch
