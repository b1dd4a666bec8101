// FileSystem says how the hosts of a cluster mount something for a job, as the cluster's file describes it. Value type.
#pragma once

#include <string>

namespace hvd::launch {

struct FileSystem {
  std::string name;               // the mount's name (relativeMountPath)
  std::string type;               // as mount -t: "nfs", "cifs", ...; "bind"; "blobfuse"
  std::string source;             // as mount takes it; for blobfuse the container; for bind a directory of the hosts
  std::string options;            // as mount -o; for blobfuse further words of its command line
  std::string account;            // for cifs the user, for blobfuse the storage account
  std::string password_variable;  // in the environment of `submit`; empty: kPasswordVariable, if that is set
  std::string here;               // this machine's directory with the same contents; empty: none
  std::string password;           // never written to a file

  friend bool operator==(const FileSystem&, const FileSystem&) = default;

  // True when mounting it needs a password or key.
  [[nodiscard]] bool needs_password() const { return type == "blobfuse" || (is_cifs() && !account.empty()); }
  [[nodiscard]] bool is_cifs() const { return type == "cifs" || type == "smb3"; }
  // True when a user who is not root may mount it too, in a user namespace.
  [[nodiscard]] bool is_for_all() const { return type == "bind" || type == "tmpfs" || type == "blobfuse"; }
};

// Azure's own command line reads this variable.
inline constexpr const char* kPasswordVariable = "AZURE_BATCHAI_STORAGE_KEY";

}  // namespace hvd::launch
