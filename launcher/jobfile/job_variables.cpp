#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/mount_command.h"
#include "launcher/jobfile/variable_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Role = JobProcess::Role;

// Returns the port `offset` places after `first`, if that is a number; a plan does not know the port yet.
std::string port_text(const std::string& first, int offset) {
  const bool is_number = !first.empty() && first.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    return "<port " + std::to_string(offset + 1) + ">";
  }
  constexpr int kFirst = 1024;
  constexpr int kCount = 65536 - kFirst;
  return std::to_string(kFirst + (std::stoi(first) - kFirst + offset) % kCount);
}

// Returns "address:port" for each process of a role. On a node the parameter servers have the first ports, the workers
// the next ones.
std::vector<std::string> endpoints(const JobRun& run, const std::vector<JobNodeFacts>& facts, Role role) {
  std::vector<std::string> all;
  for (std::size_t node = 0; node < facts.size(); ++node) {
    int offset = 0;
    for (const Role each : {Role::kServer, Role::kWorker}) {
      for (const JobProcess& process : run.layout.processes) {
        if (process.node == static_cast<int>(node) && process.role == each) {
          const std::string port = port_text(facts[node].port, offset++);
          if (each == role) {
            all.push_back(host_and_port(facts[node].address, port));
          }
        }
      }
    }
  }
  return all;
}

// Returns TF_CONFIG, which tf.distribute and tf.estimator read. A single process gets no cluster: with one, an
// estimator would demand a chief in it.
std::string tf_config(const JobRun& run, const std::vector<JobNodeFacts>& facts, const JobProcess& process) {
  nlohmann::ordered_json json;
  json["cluster"] = nlohmann::ordered_json::object();
  if (run.layout.size() > 1) {
    if (const auto servers = endpoints(run, facts, Role::kServer); !servers.empty()) {
      json["cluster"]["ps"] = servers;
    }
    json["cluster"]["worker"] = endpoints(run, facts, Role::kWorker);
  }
  json["task"]["type"] = process.role == Role::kServer ? "ps" : "worker";
  json["task"]["index"] = process.index;
  json["environment"] = "cloud";
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Settings node_variables(const JobRun& run, const std::vector<JobNodeFacts>& facts, int node) {
  std::vector<std::string> addresses;
  const JobNodeFacts* master = nullptr;  // the first that is there
  for (const JobNodeFacts& fact : facts) {
    if (!fact.address.empty()) {
      master = master == nullptr ? &fact : master;
      addresses.push_back(fact.address);
    }
  }
  master = master == nullptr ? &facts.front() : master;  // before any of them is known
  const JobNodeFacts& own = facts[static_cast<std::size_t>(node)];
  const std::string list = joined(addresses, ",");
  Settings env = {{"AZ_BATCHAI_MOUNT_ROOT", run.cluster_mount_root()},
                  {"AZ_BATCHAI_JOB_MOUNT_ROOT", run.mount_root()},
                  {"AZ_BATCHAI_JOB_TEMP", run.temp()},
                  {"AZ_BATCHAI_JOB_TEMP_DIR", run.root},
                  {"AZ_BATCHAI_SHARED_JOB_TEMP", run.shared()},
                  {"AZ_BATCHAI_STDOUTERR_DIR", run.output},
                  {"AZ_BATCHAI_MPI_HOST_FILE", run.host_file()},
                  {"AZ_BATCHAI_NUM_GPUS", std::to_string(own.gpus)},
                  {"AZ_BATCH_HOST_LIST", list},
                  {"AZ_BATCH_NODE_LIST", joined(addresses, ";")},
                  {"AZ_BATCH_MASTER_NODE", host_and_port(master->address, port_text(master->port, 0))},
                  {"AZ_BATCH_IS_CURRENT_NODE_MASTER", &own == master ? "true" : "false"},
                  {"AZ_BATCH_NODE_ID", run.layout.ids[static_cast<std::size_t>(node)]},
                  {"AZ_BATCH_JOB_ID", run.job.name},
                  {"AZ_BATCH_TASK_SHARED_DIR", run.shared()}};
  for (const JobVariable& secret : run.job.secrets) {
    env.emplace_back(secret.name, *secret.value);
  }
  const Settings passwords = mount_variables(run);
  env.insert(env.end(), passwords.begin(), passwords.end());
  return env;
}

Settings process_variables(const JobRun& run, const std::vector<JobNodeFacts>& facts, int rank) {
  const JobProcess& process = run.layout.processes[static_cast<std::size_t>(rank)];
  Settings env = node_variables(run, facts, process.node);
  env.emplace_back("AZ_BATCHAI_TASK_INDEX", std::to_string(process.index));
  if (run.job.tool.kind == Toolkit::kTensorFlow) {
    env.emplace_back("AZ_BATCHAI_PS_HOSTS", joined(endpoints(run, facts, Role::kServer), ","));
    env.emplace_back("AZ_BATCHAI_WORKER_HOSTS", joined(endpoints(run, facts, Role::kWorker), ","));
    env.emplace_back("TF_CONFIG", tf_config(run, facts, process));
  }
  if (run.job.tool.kind == Toolkit::kPyTorch) {
    env.emplace_back("AZ_BATCHAI_PYTORCH_INIT_METHOD",
                     "tcp://" + host_and_port(facts.front().address, port_text(facts.front().port, 0)));
    env.emplace_back("AZ_BATCHAI_PYTORCH_BACKEND", run.job.tool.backend);
  }
  return env;
}

Result<void> check_word_sizes(const JobRun& run) {
  const auto check = [&run](const std::string& name, std::size_t bytes, Position at) -> Result<void> {
    const std::size_t size = name.size() + 1 + bytes;
    if (size <= kMostWordBytes || run.options.overridden.contains(name)) {
      return {};
    }
    return error_at(run.job.file, at,
                    "the variable " + shown_text(name) + " has " + std::to_string(size) +
                        " bytes with its name, and Linux gives a program none of more than " +
                        std::to_string(kMostWordBytes) + "; put the value into a file, and its name here");
  };
  for (const auto* list : {&run.job.variables, &run.job.secrets}) {
    for (const JobVariable& variable : *list) {
      HVD_TRY(check(variable.name, variable.value ? variable.value->size() : 0, variable.at));
    }
  }
  for (const NamedPath& input : run.job.inputs) {
    HVD_TRY(check("AZ_BATCHAI_INPUT_" + input.id, input.path.size(), input.at));
  }
  for (const OutputDirectory& output : run.job.outputs) {
    HVD_TRY(check("AZ_BATCHAI_OUTPUT_" + output.id, output.prefix.size() + output.suffix.size(), output.at));
  }
  const Tool& tool = run.job.tool;
  for (const std::string* text : {&tool.args, &tool.master_args, &tool.server_args, &tool.script, &tool.config_file}) {
    const auto words = read_arguments(*text);
    if (words.ok() && words.value().longest > kMostWordBytes) {
      return error_at(run.job.file, tool.at,
                      "an argument has " + std::to_string(words.value().longest) +
                          " bytes, and Linux gives a program none of more than " + std::to_string(kMostWordBytes));
    }
  }
  return {};
}

namespace {

// Returns true for a value that names one of the file's directories, or one of these variables.
bool needs_directories(const JobVariable& variable, const std::set<std::string, std::less<>>& later) {
  const auto pieces = split_variables(*variable.value);
  return std::any_of(pieces.begin(), pieces.end(), [&later](const TextPiece& piece) {
    return piece.is_variable && (piece.text.starts_with("AZ_BATCHAI_INPUT_") ||
                                 piece.text.starts_with("AZ_BATCHAI_OUTPUT_") || later.contains(piece.text));
  });
}

}  // namespace

// Directories may name variables of the file, and variables directories.
std::string exported_variables(const JobRun& run) {
  std::string text;
  std::set<std::string, std::less<>> later;
  const auto add = [&](const std::string& name, const std::string& word) {
    if (!run.options.overridden.contains(name)) {
      text += "export " + name + "=" + word + "\n";
    }
  };
  for (const JobVariable& variable : run.job.variables) {
    if (needs_directories(variable, later)) {
      later.insert(variable.name);
    } else {
      add(variable.name, quote_with_variables(*variable.value));
    }
  }
  for (const NamedPath& input : run.job.inputs) {
    add("AZ_BATCHAI_INPUT_" + input.id, quote_with_variables(input.path));
  }
  for (const OutputDirectory& output : run.job.outputs) {
    const bool is_below_temp =
        !run.starts_in_folder() && !output.prefix.starts_with('/') && !output.prefix.starts_with('$');
    std::string path = (is_below_temp ? run.temp() + "/" : "") + output.prefix;
    if (output.is_new) {
      path += "/" + run.segment + "/" + (output.suffix.empty() ? "outputs" : output.suffix);
    } else if (!output.suffix.empty()) {
      path += "/" + output.suffix;
    }
    add("AZ_BATCHAI_OUTPUT_" + output.id, quote_with_variables(path));
  }
  for (const JobVariable& variable : run.job.variables) {
    if (later.contains(variable.name)) {
      add(variable.name, quote_with_variables(*variable.value));
    }
  }
  return text;
}

}  // namespace hvd::launch
