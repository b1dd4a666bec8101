// FileSystem: how the hosts of a cluster mount something for a job, as the cluster's file says it. Value type.
#pragma once

#include <string>

namespace hvd::launch {

struct FileSystem {
  std::string name;               // of the mount (relativeMountPath)
  std::string type;               // as mount -t: "nfs", "cifs", ...; "bind"; "blobfuse"
  std::string source;             // as mount takes it; of blobfuse the container; of bind a directory of the hosts
  std::string options;            // as mount -o; of blobfuse further words of its command line
  std::string account;            // of cifs the user, of blobfuse the storage account
  std::string password_variable;  // of the environment of whoever submits; empty: kPasswordVariable, if it is there
  std::string here;               // the directory of this machine that is the same; empty: there is none
  std::string password;           // stands in no file

  friend bool operator==(const FileSystem&, const FileSystem&) = default;

  // Who mounts it proves who that is with a password or key.
  [[nodiscard]] bool needs_password() const { return type == "blobfuse" || (is_cifs() && !account.empty()); }
  [[nodiscard]] bool is_cifs() const { return type == "cifs" || type == "smb3"; }
  // A user who is not root may mount it too, in a user namespace.
  [[nodiscard]] bool is_for_all() const { return type == "bind" || type == "tmpfs" || type == "blobfuse"; }
};

// The one that Azure's own command line reads.
inline constexpr const char* kPasswordVariable = "AZURE_BATCHAI_STORAGE_KEY";

}  // namespace hvd::launch
