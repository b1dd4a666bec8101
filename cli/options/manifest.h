// Writes what Kubernetes needs for a job as YAML: a pod for hvdrun, one for each node, and the key that they share. It
// is only a text; nothing of a cluster is asked. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::cli {

struct ManifestOptions {
  std::string kind = "jobset";  // "job": without a controller to install; "trainjob": for Kubeflow's
  std::string name;
  std::string image;         // of the nodes; has the user's program
  std::string hvdrun_image;  // has hvdrun, whose agent is copied to the nodes; empty: `image` has it
  std::string secret_name;   // a Secret of the user's with the key; empty: one is written
  std::string secret;        // then: its 64 hex digits
  int nodes = 1;
  int gpus = 0;  // of each node
  int port = 0;
  double start_timeout_s = 0;
  double grace_s = 0;
  std::vector<std::string> words;  // options of hvdrun and the command
};

// kInvalid: a name that no pod can have, or an option that is missing.
Result<void> check_manifest(const ManifestOptions& options);
// kInvalid: a word that no manifest can hold.
Result<std::string> manifest_text(const ManifestOptions& options);

}  // namespace hvd::cli
