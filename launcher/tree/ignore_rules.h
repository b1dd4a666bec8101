// IgnoreRules are the patterns of an ignore file (.hvdignore), which say what of a folder stays at home. They mean what
// git's documentation says of .gitignore: the last pattern that fits decides, "!" takes back, "/" at the end means
// folders only, "/" elsewhere ties the pattern to the folder of the file, "**" stands for any number of folders.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

class IgnoreRules {
 public:
  IgnoreRules() = default;
  explicit IgnoreRules(std::string_view text);

  [[nodiscard]] bool is_empty() const { return rules_.empty(); }
  // `path` is relative to the folder of the file. Nothing is asked about what is within a folder that is left out.
  [[nodiscard]] bool leaves_out(std::string_view path, bool is_folder) const;
  // The same for a path whose folders were not asked about: it is left out too where one of them is.
  [[nodiscard]] bool leaves_out_below(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string pattern;
    bool takes_back = false;
    bool is_for_folders = false;
    bool is_tied = false;  // to the whole path; else to its last part
  };
  std::vector<Rule> rules_;
};

// True where the whole path fits the pattern: "*" and "?" and "[...]" do not reach over "/", "**" does.
bool fits_pattern(std::string_view pattern, std::string_view path);

}  // namespace hvd::launch
