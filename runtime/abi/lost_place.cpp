#include "runtime/abi/lost_place.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include <dirent.h>

#include "runtime/base/contract.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"
#include "runtime/observe/activity_page.h"

namespace hvd {
namespace {

// No chain of real programs is longer. A table of processes that changes while it is read may have a circle.
constexpr int kMostAncestors = 64;
constexpr int kMostRanks = 1 << 20;

// Returns the parent; 0: the process is gone, or has none.
pid_t parent_of(const std::string& folder) {
  constexpr int kParent = 4;  // as proc(5) numbers the fields
  return parse_number<pid_t>(stat_field(text_of_file(folder + "/stat"), kParent), 0).value_or(0);
}

// OpenFiles says what is known of a process by its anonymous files.
struct OpenFiles {
  std::optional<int> ranks;  // of its job, if it is an agent
  bool has_joined = false;   // it uses libhvd, and has joined a job
};

OpenFiles open_files_of(const std::string& folder) {
  const std::string names = folder + "/fd";
  const std::string mark = std::string("/memfd:") + contract::kRanksMark;
  const std::string page = std::string("/memfd:") + ActivityPage::kFileName + " ";
  OpenFiles found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(names.c_str()), ::closedir);
  while (const dirent* entry = directory == nullptr ? nullptr : ::readdir(directory.get())) {
    std::array<char, 64> target{};
    const ssize_t length = ::readlink((names + "/" + entry->d_name).c_str(), target.data(), target.size());
    const std::string_view name(target.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    if (name.starts_with(mark)) {
      const std::string_view number = name.substr(mark.size());
      found.ranks = parse_number<int>(number.substr(0, number.find(' ')), 0, kMostRanks).value_or(0);
    }
    found.has_joined = found.has_joined || name.starts_with(page);
  }
  return found;
}

// The environment as it was when the program began.
bool has_place(const std::string& folder) {
  const std::string wanted = std::string(contract::kRank) + "=";
  const std::string text = text_of_file(folder + "/environ");
  return text.starts_with(wanted) || text.find('\0' + wanted) != std::string::npos;
}

// "sudo (process 123)".
std::string name_of(const std::string& folder, pid_t process) {
  std::string name = text_of_file(folder + "/comm");
  name.erase(std::min(name.find('\n'), name.size()));
  name = without_controls(name);
  return (name.empty() ? "a program" : name) + " (process " + std::to_string(process) + ")";
}

}  // namespace

std::string words_for_lost_place(pid_t process, const std::string& proc) {
  std::string holder;  // the nearest process above that has the variables
  pid_t at = parent_of(proc + "/" + std::to_string(process));
  for (int step = 0; at > 1 && step < kMostAncestors; ++step) {
    const std::string folder = proc + "/" + std::to_string(at);
    const OpenFiles files = open_files_of(folder);
    if (files.ranks) {  // an agent, which may have pages of its ranks open as well
      return *files.ranks < 2
                 ? ""
                 : "hvdrun has started " + std::to_string(*files.ranks) + " ranks, and this one runs alone: " +
                       (holder.empty() ? "a program in its command, as env -i," : holder) +
                       " has not passed on the variables by which ranks find each other (HVD_RANK and others); let it "
                       "keep its environment, as sudo -E does, or put it in front of hvdrun";
    }
    if (files.has_joined) {
      return "";
    }
    if (holder.empty() && has_place(folder)) {
      holder = name_of(folder, at);
    }
    at = parent_of(folder);
  }
  return "";
}

}  // namespace hvd
