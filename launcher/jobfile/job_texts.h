// JobTexts are the shell texts of a job on one node. Each is in a file of mode 0600 that the node's agent writes beside
// its socket, and removes at its end. On a command line every user of the node could read the job's variables, and the
// kernel takes no word of more than 128 KiB.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launch {

// Linux passes no longer word, of a command line or of a variable with its name and "=", to a program (MAX_ARG_STRLEN,
// less the NUL).
inline constexpr std::size_t kMostWordBytes = (128U << 10U) - 1;

class JobTexts {
 public:
  using Files = std::vector<std::pair<std::string, std::string>>;  // name and text

  // `folder` is where the agent writes them.
  explicit JobTexts(std::string folder) : folder_(std::move(folder)) {}

  // Returns the path of the file that holds the text; equal texts share one file.
  std::string add(std::string text);
  [[nodiscard]] const Files& files() const { return files_; }
  // Returns all texts one after the other, for `hvdrun plan` to show.
  [[nodiscard]] std::string joined() const;

 private:
  std::string folder_;
  Files files_;
};

// Returns the command by which bash runs such a file; further words become its $1 and so on.
std::vector<std::string> bash_words(const std::string& path);
// Returns the same as shell text. `path` is a shell word.
std::string bash_command(std::string_view path);

}  // namespace hvd::launch
