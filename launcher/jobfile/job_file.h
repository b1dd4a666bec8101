// JobFile is one job as its file describes it, whatever form the file has. Nothing is looked up, expanded or checked
// against hosts yet. Value type; made by read_job_file(). A supervisor needs nothing else of the file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/jobfile/document.h"
#include "launcher/jobfile/file_system.h"
#include "launcher/jobfile/schema.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// More processes are a typing error, and would take all memory; what the nodes can hold is checked later.
inline constexpr int kMostProcesses = 1'000'000;
// What a file may say of a job's urgency.
inline constexpr std::array<const char*, 3> kPriorities = {"low", "normal", "high"};

// Toolkit is one of Batch AI's toolkits; it decides which processes are started, and by whom.
enum class Toolkit : std::uint8_t {
  kHorovod,
  kCustomMpi,
  kCustom,
  kPyTorch,
  kTensorFlow,
  kCntk,
  kCaffe,
  kCaffe2,
  kChainer,
};
// Returns the name that `show` prints: "horovod", "mpi", "custom", ...
const char* tool_type(Toolkit toolkit);

// Tool says what is started. Texts are shell text unless said otherwise.
struct Tool {
  Toolkit kind = Toolkit::kHorovod;
  Position at;
  std::string command_line;  // for the custom toolkits
  std::string interpreter;   // empty: python
  std::string script;
  std::string config_file;  // for Caffe; for CNTK its BrainScript
  std::string args;         // for TensorFlow those of the workers
  std::string master_args;  // for TensorFlow's worker 0
  std::string server_args;  // for its parameter servers
  std::string backend;      // for PyTorch
  std::optional<int> process_count;
  std::optional<int> worker_count;
  std::optional<int> server_count;
};

struct NamedPath {  // an input directory
  std::string id;
  std::string path;  // may name variables
  Position at;
};

struct OutputDirectory {
  std::string id;
  std::string prefix;  // may name variables
  std::string suffix;
  bool is_new = true;  // below a folder that belongs to the job; false (2017): prefix and suffix as they are
  Position at;
};

struct JobVariable {
  std::string name;
  std::optional<std::string> value;  // may name variables, but a secret is taken literally. Empty: hvdrun's own value
  Position at;
};

struct Mount {
  std::string name;                         // relativeMountPath, or what follows $AZ_BATCHAI_MOUNT_ROOT in the file
  bool is_of_cluster = false;               // true: below AZ_BATCHAI_MOUNT_ROOT instead of AZ_BATCHAI_JOB_MOUNT_ROOT
  std::string directory;                    // on the nodes; empty: the mount map has it
  std::string source;                       // the share, container or server, for messages
  std::string key{};                        // the key of its storage account; empty: not given
  std::optional<FileSystem> file_system{};  // mounted for the job, in place of a directory
  Position at;
};

// Returns whether an image may have this name: it is one word, and no option of a container engine.
inline bool is_image_name(std::string_view name) {
  return !name.empty() && name.front() != '-' && name.find_first_of(" \t\r\n") == std::string_view::npos;
}

struct ContainerImage {
  std::string image;
  std::string registry;  // serverUrl
  std::string user;
  std::string password;
  std::string shm_size;

  // Returns where one logs in.
  [[nodiscard]] std::string server() const { return registry.empty() ? "docker.io" : registry; }
};

struct JobFile {
  std::string file;  // as the user named it
  std::string name;
  bool is_native = false;
  int node_count = 1;
  Position node_count_at;
  // of an elastic job; empty: not given
  std::optional<int> min_nodes;
  std::optional<int> max_nodes;
  Position elastic_at;  // of the first of the two
  Tool tool;
  std::vector<NamedPath> inputs;
  std::vector<OutputDirectory> outputs;
  std::vector<JobVariable> variables;
  std::vector<JobVariable> secrets;
  std::vector<Mount> mounts;
  std::string preparation;    // shell text that runs on every node; empty: none
  std::string output_prefix;  // stdOutErrPathPrefix; may name variables; empty (native form): no files
  Position output_at;
  std::optional<ContainerImage> container;
  Duration timeout = Duration::zero();  // 0: none
  std::string gpus;                     // empty: not given
  std::string experiment = "default";
  std::string priority = "normal";
  std::vector<std::string> hosts;  // entries of host lists; empty: not given
  Position hosts_at;
  std::vector<std::string> hidden;  // texts that no output may show: secrets, passwords, keys

  // "the timeout of job.yaml", for the message that the time is over.
  [[nodiscard]] std::string timeout_setting() const {
    return std::string("the ") + (is_native ? "timeout" : "maxWallClockTime") + " of " + file;
  }
  [[nodiscard]] bool is_elastic() const { return min_nodes || max_nodes; }
  [[nodiscard]] int least_nodes() const { return min_nodes.value_or(node_count); }
  [[nodiscard]] int most_nodes() const { return max_nodes.value_or(node_count); }
};

struct JobFileOptions {
  std::string storage_account;           // for <AZURE_BATCHAI_STORAGE_ACCOUNT>; empty: not known
  std::vector<std::string> environment;  // hvdrun's own, for values that the file leaves open
  std::vector<std::string> mounts{};     // names that the user or the cluster gave, whether the file mounts them or not
};

struct LoadedJobFile {
  JobFile job;
  Notices notices;
};

// All errors are the user's (kInvalid), and begin with FILE:LINE:COLUMN where the fault is in the file.
Result<LoadedJobFile> parse_job_file(std::string_view text, const std::string& file, const JobFileOptions& options);
// Returns the contents of the file; of one that is too long only a part.
Result<std::string> read_job_text(const std::string& file);
Result<LoadedJobFile> read_job_file(const std::string& file, const JobFileOptions& options);

// The keys of either form.
const Schema& batchai_schema();
const Schema& native_schema();

// Refuses a toolkit whose processes are started once, all together. `asked_by`, which stands at `at`, asks for more.
Result<void> check_can_be_elastic(Toolkit toolkit, const std::string& asked_by, const std::string& file, Position at);

// Job names follow the service's rules: letters, digits, - and _, up to so many.
inline constexpr std::size_t kMostJobName = 64;
bool is_job_name(std::string_view name);
bool is_variable_name(std::string_view name);
// True for a path below a folder: relative, not empty, and without a way out of the folder.
bool is_inner_path(std::string_view path);

}  // namespace hvd::launch
