#include "launcher/tree/result_sender.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include <dirent.h>
#include <limits.h>

namespace hvd::launch {
namespace {

constexpr std::size_t kListEntries = 4096;
constexpr mode_t kPermissions = 0777;

struct FolderClose {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// Walk finds the results. Folders are looked into whatever their names, since a pattern may name what is in them.
class Walk {
 public:
  Walk(std::string root, const TreeIndex& brought, const IgnoreRules& patterns)
      : root_(std::move(root)), patterns_(patterns) {
    for (const WrittenEntry& written : brought.entries) {
      brought_.emplace(written.entry.path, &written);
    }
  }

  void enter(const std::string& below) {
    const std::unique_ptr<DIR, FolderClose> folder(::opendir((root_ + "/" + below).c_str()));
    if (folder == nullptr) {
      return;  // it has just gone, or a rank has taken its rights away
    }
    while (const dirent* const item = ::readdir(folder.get())) {
      const std::string name = item->d_name;
      if (name != "." && name != "..") {
        look_at(below.empty() ? name : below + "/" + name);
      }
    }
  }

  std::vector<TreeEntry> found() && {
    std::vector<TreeEntry> entries;
    for (auto& [path, entry] : found_) {
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  void look_at(const std::string& path) {
    struct stat status{};
    if (::lstat((root_ + "/" + path).c_str(), &status) != 0) {
      return;
    }
    if (S_ISDIR(status.st_mode)) {
      enter(path);
      return;
    }
    const auto brought = brought_.find(path);
    const bool is_result = (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode)) &&
                           (brought == brought_.end() || !brought->second->looks_like(status));
    if (is_result && patterns_.leaves_out_below(path, false)) {
      add(path, status);
    }
  }

  void add(const std::string& path, const struct stat& status) {
    TreeEntry entry;
    entry.path = path;
    entry.mode = status.st_mode & kPermissions;
    if (S_ISLNK(status.st_mode)) {
      std::array<char, PATH_MAX> target{};
      const ssize_t length = ::readlink((root_ + "/" + path).c_str(), target.data(), target.size());
      if (length <= 0) {
        return;
      }
      entry.kind = TreeEntry::Kind::kLink;
      entry.target.assign(target.data(), static_cast<std::size_t>(length));
    } else {
      entry.size = static_cast<std::uint64_t>(status.st_size);
      entry.changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;  // it may be before 1970
    }
    constexpr mode_t kFolderMode = 0755;
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      TreeEntry& folder = found_[path.substr(0, slash)];
      folder.path = path.substr(0, slash);
      folder.kind = TreeEntry::Kind::kFolder;
      folder.mode = kFolderMode;
    }
    found_[path] = std::move(entry);
  }

  const std::string root_;
  const IgnoreRules& patterns_;
  std::unordered_map<std::string, const WrittenEntry*> brought_;
  std::map<std::string, TreeEntry> found_;
};

}  // namespace

std::vector<TreeEntry> results_in(const std::string& root, const TreeIndex& brought, const IgnoreRules& patterns) {
  Walk walk(root, brought, patterns);
  walk.enter("");
  return std::move(walk).found();
}

void ResultSender::begin(const TreeIndex& brought, const std::vector<std::string>& patterns) {
  std::string text;
  for (const std::string& pattern : patterns) {
    text += pattern + "\n";
  }
  entries_ = results_in(root_, brought, IgnoreRules(text));
  for (std::uint32_t index = 0; index < entries_.size(); ++index) {
    if (entries_[index].kind == TreeEntry::Kind::kFile) {
      files_.push_back(index);
    }
  }
  if (!entries_.empty()) {
    send_list();
  }
  send_soon();
}

void ResultSender::send_list() {
  for (std::size_t begin = 0; begin < entries_.size(); begin += kListEntries) {
    const std::size_t end = std::min(entries_.size(), begin + kListEntries);
    TreeList part;
    part.is_last = end == entries_.size();
    part.entries.assign(entries_.begin() + static_cast<std::ptrdiff_t>(begin),
                        entries_.begin() + static_cast<std::ptrdiff_t>(end));
    sink_.send(AgentMessage::kResultList, part.encode());
  }
}

void ResultSender::on_credit(std::uint64_t bytes) {
  credit_ += static_cast<std::int64_t>(std::min(bytes, kTreeWindow));
  send_soon();
}

void ResultSender::send_soon() {
  if (timer_ == 0) {
    timer_ = loop_.after(Duration::zero(), [this] {
      timer_ = 0;
      send_more();
    });
  }
}

void ResultSender::send_more() {
  if (place_.file == files_.size()) {
    sink_.on_over();
    return;
  }
  if (credit_ <= 0) {
    return;
  }
  const auto portion = read_portion(root_, entries_, files_, place_, files_.size(), true);
  if (!portion.ok()) {
    sink_.on_problem(portion.error().message() + "; what follows it does not come home");
    sink_.on_over();
    return;
  }
  credit_ -= static_cast<std::int64_t>(portion.value().body.size());
  place_ = portion.value().next;
  sink_.send(AgentMessage::kResultBytes, portion.value().body);
  send_soon();
}

}  // namespace hvd::launch
