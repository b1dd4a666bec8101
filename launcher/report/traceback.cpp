#include "launcher/report/traceback.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>

namespace hvd::launch {
namespace {

// Removes the "[rank3]: " with which torch.distributed begins each line.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kEnd = "]: ";
  const auto end = line.starts_with("[rank") ? line.find(kEnd) : std::string_view::npos;
  return end == std::string_view::npos ? line : line.substr(end + kEnd.size());
}

// Returns "train.py:12 in step" for `  File "train.py", line 12, in step`; a syntax error has no "in".
std::optional<std::string> frame_of(std::string_view line) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  const auto middle = line.find(kLine);
  if (!line.starts_with(kFile) || middle == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view rest = line.substr(middle + kLine.size());
  const auto in = rest.find(kIn);
  std::string frame(line.substr(kFile.size(), middle - kFile.size()));
  frame.append(":").append(rest.substr(0, in));
  if (in != std::string_view::npos) {
    frame.append(" in ").append(rest.substr(in + kIn.size()));
  }
  return frame;
}

bool is_indented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

// True for "pkg.Error: text" and "KeyboardInterrupt".
bool is_exception(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(':'));
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c >= 0x80; });
}

// An error of our own package is raised deep within it. The program's line that called it says more.
bool is_of_package(std::string_view frame) {
  return frame.find("/horovod/") != std::string_view::npos;
}

// Returns the frame at `last`, or the innermost one before it in the same traceback that is not the package's.
std::string program_frame(const std::vector<std::string>& lines, std::size_t last) {
  for (std::size_t i = last + 1; i-- > 0 && is_indented(without_rank(lines[i]));) {
    const auto frame = frame_of(without_rank(lines[i]));
    if (frame && !is_of_package(*frame)) {
      return *frame;
    }
  }
  return *frame_of(without_rank(lines[last]));
}

}  // namespace

std::optional<Traceback> find_traceback(const std::vector<std::string>& lines) {
  for (std::size_t i = lines.size(); i-- > 0;) {
    const auto frame = frame_of(without_rank(lines[i]));
    if (!frame) {
      continue;
    }
    const auto after = std::find_if_not(lines.begin() + static_cast<std::ptrdiff_t>(i), lines.end(),
                                        [](const std::string& line) { return is_indented(without_rank(line)); });
    if (after == lines.end() || !is_exception(without_rank(*after))) {
      return std::nullopt;
    }
    const std::string_view what = without_rank(*after);
    return Traceback{std::string(what), what.starts_with("horovod.") ? program_frame(lines, i) : *frame};
  }
  return std::nullopt;
}

}  // namespace hvd::launch
