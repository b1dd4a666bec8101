// JobTexts: the shell texts of a job on one node, each in a file of mode 0600 that the node's agent writes beside its
// socket and removes at its end. On a command line every user of the node would read the job's variables, and the
// kernel takes no word of more than 128 KiB.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launch {

// The longest word of a command line or variable with its name and "=" that Linux gives a program (MAX_ARG_STRLEN, less
// the NUL).
inline constexpr std::size_t kMostWordBytes = (128U << 10U) - 1;

class JobTexts {
 public:
  using Files = std::vector<std::pair<std::string, std::string>>;  // name and text

  // `folder`: where the agent writes them.
  explicit JobTexts(std::string folder) : folder_(std::move(folder)) {}

  // The path of the file that holds the text; one that is there already is there once.
  std::string add(std::string text);
  [[nodiscard]] const Files& files() const { return files_; }
  // All of them, one after the other: for those who look.
  [[nodiscard]] std::string joined() const;

 private:
  std::string folder_;
  Files files_;
};

// The command by which bash does what such a file says; further words are $1 and so on there.
std::vector<std::string> bash_words(const std::string& path);
// The same as shell text. `path` is a shell word.
std::string bash_command(std::string_view path);

}  // namespace hvd::launch
