#include "launcher/service/file_systems.h"

#include <algorithm>
#include <array>

#include "launcher/jobfile/job_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Type = Field::Type;

constexpr std::array<const char*, 9> kTypes = {"nfs",    "nfs4",  "cifs", "smb3",    "glusterfs",
                                               "lustre", "tmpfs", "bind", "blobfuse"};

constexpr std::array kFileSystemFields = {
    Field{"name", Type::kText, "of the mount: its relativeMountPath in job files", true},
    Field{"type", Type::kText, "how it is mounted", true, nullptr, 0, 0, kTypes},
    Field{"source", Type::kText,
          "what is mounted: SERVER:/PATH (nfs), //SERVER/SHARE (cifs), the container (blobfuse), a directory of the "
          "hosts (bind)",
          true},
    Field{"options", Type::kText, "as mount -o; of blobfuse further words of its command line"},
    Field{"account", Type::kText, "of cifs the user's name, of blobfuse the storage account"},
    Field{"passwordVariable", Type::kText,
          "variable that holds the password or key where a job is submitted; default: AZURE_BATCHAI_STORAGE_KEY, else "
          "the accountKey of the job file"},
    Field{"localDirectory", Type::kText,
          "directory of this machine that is the same, for the files of a job's output"}};
constexpr Schema kFileSystem = {"a file system", kFileSystemFields};

// The helpers of mount take passwords on their command lines by these words.
constexpr std::array<std::string_view, 5> kPasswordWords = {"password", "pass=", "passwd", "credentials",
                                                            "account-key"};

class FileSystemReader {
 public:
  FileSystemReader(const DocValue& map, const std::string& file) : map_(map), file_(file) {}

  Result<FileSystem> read() {
    FileSystem system;
    HVD_TRY_ASSIGN(system.name, line_of("name"));
    HVD_TRY_ASSIGN(system.type, line_of("type"));
    system.type = lowered(std::move(system.type));
    HVD_TRY_ASSIGN(system.source, line_of("source"));
    HVD_TRY_ASSIGN(system.options, line_of("options"));
    HVD_TRY_ASSIGN(system.account, line_of("account"));
    HVD_TRY_ASSIGN(system.password_variable, line_of("passwordVariable"));
    HVD_TRY_ASSIGN(system.here, line_of("localDirectory"));
    while (system.here.size() > 1 && system.here.ends_with('/')) {
      system.here.pop_back();
    }
    HVD_TRY(check(system));
    return system;
  }

 private:
  [[nodiscard]] Error refuse(const char* key, const std::string& what) const {
    const DocValue* value = map_.find(key);
    return error_at(file_, value == nullptr ? map_.at : value->at, std::string(key) + ": " + what);
  }

  [[nodiscard]] Result<std::string> line_of(const char* key) const {
    const DocValue* value = map_.find(key);
    if (value == nullptr) {
      return std::string();
    }
    return is_plain_line(value->text) ? Result<std::string>(value->text)
                                      : Result<std::string>(refuse(key, "control characters stand in it"));
  }

  [[nodiscard]] Result<void> check(const FileSystem& system) const {
    if (!is_inner_path(system.name)) {
      return refuse("name", "'" + shown_text(system.name) + "' cannot be where something is mounted");
    }
    if (system.source.empty() || system.source.front() == '-') {
      return refuse("source", "'" + shown_text(system.source) + "' cannot be mounted");
    }
    if (system.type == "bind" && system.source.front() != '/') {
      return refuse("source", "expected the absolute path of a directory on the hosts");
    }
    const bool has_password =
        std::any_of(kPasswordWords.begin(), kPasswordWords.end(),
                    [&system](std::string_view word) { return system.options.find(word) != std::string::npos; });
    if (has_password) {
      return refuse("options",
                    "a password would stand on a command line, where every user of the host sees it; name the variable "
                    "that holds it with passwordVariable");
    }
    if (!system.account.empty() && !system.needs_password()) {
      return refuse("account", "means nothing for " + system.type + "; it is of cifs, smb3 and blobfuse");
    }
    if (system.type == "blobfuse" && system.account.empty()) {
      return refuse("account", "blobfuse needs the storage account's name");
    }
    if (!system.password_variable.empty() && !is_variable_name(system.password_variable)) {
      return refuse("passwordVariable",
                    "'" + shown_text(system.password_variable) + "' cannot be the name of a variable");
    }
    if (!system.password_variable.empty() && !system.needs_password()) {
      return refuse("passwordVariable", "means nothing without an account");
    }
    if (!system.here.empty() && system.here.front() != '/') {
      return refuse("localDirectory", "expected the absolute path of a directory of this machine");
    }
    return {};
  }

  const DocValue& map_;
  const std::string& file_;
};

bool lies_in(const std::string& name, const std::string& other) {
  return name == other || name.starts_with(other + "/");
}

}  // namespace

bool is_plain_line(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

const Schema& file_system_schema() {
  return kFileSystem;
}

Result<std::vector<FileSystem>> read_file_systems(const DocValue& list, const std::string& file) {
  std::vector<FileSystem> all;
  for (const DocValue& item : list.items) {
    HVD_TRY_ASSIGN(FileSystem system, FileSystemReader(item, file).read());
    for (const FileSystem& other : all) {
      if (lies_in(system.name, other.name) || lies_in(other.name, system.name)) {
        return error_at(file, item.at,
                        "two file systems at '" + shown_text(system.name) + "', or one inside of the other");
      }
    }
    all.push_back(std::move(system));
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> file_system_keys(const FileSystem& system) {
  std::vector<std::pair<std::string, std::string>> all = {
      {"name", system.name},          {"type", system.type},       {"source", system.source},
      {"options", system.options},    {"account", system.account}, {"passwordVariable", system.password_variable},
      {"localDirectory", system.here}};
  std::erase_if(all, [](const auto& entry) { return entry.second.empty(); });
  return all;
}

}  // namespace hvd::launch
