#include "launcher/jobfile/job_texts.h"

#include <algorithm>

namespace hvd::launch {
namespace {

// The file is read as a whole and then evaluated, so that messages begin with "bash: line N:", as those of `bash -c`
// do.
constexpr const char* kRunFile = "hvdrun_text=$(<\"$1\") || exit 242; shift; eval \"$hvdrun_text\"";

}  // namespace

std::string JobTexts::add(std::string text) {
  const auto found = std::find_if(files_.begin(), files_.end(), [&](const auto& file) { return file.second == text; });
  if (found != files_.end()) {
    return folder_ + "/" + found->first;
  }
  files_.emplace_back("text-" + std::to_string(files_.size()), std::move(text));
  return folder_ + "/" + files_.back().first;
}

std::string JobTexts::joined() const {
  std::string all;
  for (const auto& [name, text] : files_) {
    all += text;
  }
  return all;
}

std::vector<std::string> bash_words(const std::string& path) {
  return {"bash", "-c", kRunFile, "bash", path};
}

std::string bash_command(std::string_view path) {
  return std::string("bash -c '") + kRunFile + "' bash " + std::string(path);
}

}  // namespace hvd::launch
