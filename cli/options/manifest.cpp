#include "cli/options/manifest.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/job/text_file.h"
#include "launcher/jobfile/job_file.h"

namespace hvd::cli {
namespace {

using Yaml = nlohmann::ordered_json;  // keeps the order of its keys

constexpr const char* kKeyDir = "/etc/hvdrun";
constexpr const char* kKeyFile = "/etc/hvdrun/key";
constexpr const char* kAgentDir = "/opt/hvdrun";
constexpr int kKeyMode = 0400;
// After the grace hvdrun still reports, and the agents end; only then may the pods be killed.
constexpr int kEndSeconds = 30;
// A pod's name has 63 characters at most. "-launcher-0-0-" or "-node-0-", an index and "-" follow the job's name, and
// then five letters by chance. JobSet refuses what is longer.
constexpr std::size_t kLongestName = 44;

// Writes block style, with strings as JSON has them, which YAML reads the same.
void write(std::string& text, const Yaml& value, std::size_t indent) {
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    const std::string space(indent, ' ');
    if (value.is_array() && entry->is_object()) {
      std::string inner;
      write(inner, *entry, indent + 2);
      text += space + "- " + inner.substr(indent + 2);
    } else if (value.is_array()) {
      text += space + "- " + entry->dump() + "\n";
    } else if (entry->is_structured() && !entry->empty()) {
      text += space + entry.key() + ":\n";
      write(text, *entry, indent + 2);
    } else {
      text += space + entry.key() + ": " + entry->dump() + "\n";
    }
  }
}

// Kubernetes replaces $(NAME) in a container's command, and makes one $ of two. A single one before anything else stays
// as it is, so that most texts can be read in the manifest as they were written.
std::string literal(const std::string& word) {
  std::string text;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = std::min(word.find_first_not_of('$', at), word.size());
    const std::size_t count = end - at;
    const bool is_read = count > 1 || (count == 1 && end < word.size() && word[end] == '(');
    text.append(is_read ? 2 * count : count, '$');
    text += word.substr(end, 1);
    at = end + 1;
  }
  return text;
}

Yaml literals(const std::vector<std::string>& words) {
  Yaml all = Yaml::array();
  for (const std::string& word : words) {
    all.push_back(literal(word));
  }
  return all;
}

std::string seconds_text(double seconds) {
  return std::to_string(static_cast<std::int64_t>(std::ceil(seconds)));
}

std::string key_name(const ManifestOptions& options) {
  return options.secret_name.empty() ? options.name + "-key" : options.secret_name;
}

// Kubeflow Trainer makes a JobSet of a TrainJob, by the same name.
bool is_jobset(const ManifestOptions& options) {
  return options.kind != "job";
}

std::string launcher_host(const ManifestOptions& options) {
  return options.name + (is_jobset(options) ? "-launcher-0-0." : "-launcher.") + options.name;
}

// Writes what the pods of hvdrun and of the nodes have in common.
Yaml pod_of(const ManifestOptions& options, Yaml container) {
  container["volumeMounts"] = Yaml::array({{{"name", "key"}, {"mountPath", kKeyDir}, {"readOnly", true}}});
  return {
      {"restartPolicy", "Never"},
      {"automountServiceAccountToken", false},
      {"enableServiceLinks", false},
      {"terminationGracePeriodSeconds", static_cast<std::int64_t>(std::ceil(options.grace_s)) + kEndSeconds},
      {"containers", Yaml::array({std::move(container)})},
      {"volumes",
       Yaml::array({{{"name", "key"}, {"secret", {{"secretName", key_name(options)}, {"defaultMode", kKeyMode}}}}})}};
}

Yaml launcher_pod(const ManifestOptions& options) {
  std::vector<std::string> words = {"hvdrun",
                                    "--launcher=kubernetes",
                                    "--nodes=" + std::to_string(options.nodes),
                                    std::string("--key-file=") + kKeyFile,
                                    "--agent-port=" + std::to_string(options.port),
                                    "--start-timeout=" + seconds_text(options.start_timeout_s)};
  words.insert(words.end(), options.words.begin(), options.words.end());
  return pod_of(options, {{"name", "hvdrun"},
                          {"image", options.hvdrun_image.empty() ? options.image : options.hvdrun_image},
                          {"command", literals(words)}});
}

Yaml node_pod(const ManifestOptions& options) {
  const bool is_copied = !options.hvdrun_image.empty();
  const std::string agent = is_copied ? std::string(kAgentDir) + "/hvdrun-agent" : "hvdrun-agent";
  Yaml container = {{"name", "node"},
                    {"image", options.image},
                    {"command", literals({agent, "call", "kubernetes", "--key-file", kKeyFile, "--start-timeout",
                                          seconds_text(options.start_timeout_s),
                                          launcher_host(options) + ":" + std::to_string(options.port)})}};
  if (options.gpus > 0) {
    container["resources"] = {{"limits", {{"nvidia.com/gpu", options.gpus}}}};
  }
  Yaml pod = pod_of(options, std::move(container));
  Yaml& mounts = pod["containers"][0]["volumeMounts"];
  // Without this a pod has 64 MB of shared memory, and ranks that share a node need more.
  mounts.push_back({{"name", "shm"}, {"mountPath", "/dev/shm"}});
  pod["volumes"].push_back({{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}});
  if (is_copied) {
    const Yaml mount = {{"name", "agent"}, {"mountPath", kAgentDir}};
    mounts.push_back(mount);
    pod["volumes"].push_back({{"name", "agent"}, {"emptyDir", Yaml::object()}});
    pod["initContainers"] = Yaml::array(
        {{{"name", "agent"},
          {"image", options.hvdrun_image},
          {"command", literals({"sh", "-c", std::string("cp \"$(command -v hvdrun-agent)\" ") + kAgentDir})},
          {"volumeMounts", Yaml::array({mount})}}});
  }
  return pod;
}

// `count`: pods, each with an index.
Yaml job_spec(int count, Yaml pod, const Yaml& labels) {
  Yaml spec = {{"parallelism", count}, {"completions", count}, {"completionMode", "Indexed"}, {"backoffLimit", 0}};
  if (!labels.empty()) {
    spec["template"]["metadata"]["labels"] = labels;
  }
  spec["template"]["spec"] = std::move(pod);
  return spec;
}

// `node_labels`: of the Job whose pods are the nodes.
Yaml jobset_spec(const ManifestOptions& options, const Yaml& node_labels) {
  const auto replicated = [](const char* name, const Yaml& labels, Yaml spec) {
    Yaml job = {{"name", name}, {"replicas", 1}, {"template", Yaml::object()}};
    if (!labels.empty()) {
      job["template"]["metadata"]["labels"] = labels;
    }
    job["template"]["spec"] = std::move(spec);
    return job;
  };
  return {{"network", {{"enableDNSHostnames", true}, {"publishNotReadyAddresses", true}}},
          {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", Yaml::array({"launcher"})}}},
          {"failurePolicy", {{"maxRestarts", 0}}},
          {"replicatedJobs",
           Yaml::array({replicated("launcher", {}, job_spec(1, launcher_pod(options), {})),
                        replicated("node", node_labels, job_spec(options.nodes, node_pod(options), {}))})}};
}

std::vector<Yaml> jobset_of(const ManifestOptions& options) {
  return {{{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
           {"kind", "JobSet"},
           {"metadata", {{"name", options.name}}},
           {"spec", jobset_spec(options, {})}}};
}

// A TrainingRuntime with the JobSet, and the TrainJob that makes one of it. Trainer finds the nodes by their label, and
// by the name of their container; so a TrainJob's image and variables go to them.
std::vector<Yaml> trainjob_of(const ManifestOptions& options) {
  constexpr const char* kApi = "trainer.kubeflow.org/v1alpha1";
  const Yaml labels = {{"trainer.kubeflow.org/trainjob-ancestor-step", "trainer"}};
  return {
      {{"apiVersion", kApi},
       {"kind", "TrainingRuntime"},
       {"metadata", {{"name", options.name}, {"labels", {{"trainer.kubeflow.org/framework", "hvdrun"}}}}},
       {"spec", {{"mlPolicy", {{"numNodes", options.nodes}}}, {"template", {{"spec", jobset_spec(options, labels)}}}}}},
      {{"apiVersion", kApi},
       {"kind", "TrainJob"},
       {"metadata", {{"name", options.name}}},
       {"spec",
        {{"runtimeRef",
          {{"apiGroup", "trainer.kubeflow.org"}, {"kind", "TrainingRuntime"}, {"name", options.name}}}}}}};
}

// Two Jobs, and the Service that a JobSet would make, by which pods have names.
std::vector<Yaml> jobs_of(const ManifestOptions& options) {
  const Yaml labels = {{"hvdrun-job", options.name}};
  const auto job = [&](const std::string& name, Yaml spec) {
    return Yaml{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", {{"name", name}}}, {"spec", std::move(spec)}};
  };
  Yaml launcher = launcher_pod(options);
  launcher["hostname"] = options.name + "-launcher";
  launcher["subdomain"] = options.name;
  Yaml node = node_pod(options);
  node["subdomain"] = options.name;
  Yaml launcher_spec = job_spec(1, std::move(launcher), labels);
  launcher_spec["completionMode"] = "NonIndexed";  // an index would make another host name
  return {{{"apiVersion", "v1"},
           {"kind", "Service"},
           {"metadata", {{"name", options.name}}},
           {"spec", {{"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", labels}}}},
          job(options.name + "-launcher", std::move(launcher_spec)),
          job(options.name + "-node", job_spec(options.nodes, std::move(node), labels))};
}

// True where the writer, which leaves out what is not UTF-8, leaves out nothing.
bool is_unicode(const std::string& word) {
  return Yaml::parse(Yaml(word).dump(-1, ' ', false, Yaml::error_handler_t::ignore)) == word;
}

bool is_label(const std::string& name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_good = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= kLongestName && is_letter(name.front()) && name.back() != '-' &&
         std::all_of(name.begin(), name.end(), is_good);
}

}  // namespace

Result<void> check_manifest(const ManifestOptions& options) {
  if (options.image.empty() || options.nodes == 0) {
    return Error(Code::kInvalid,
                 "manifest needs --image IMAGE and --nodes N; as in: hvdrun manifest --image "
                 "registry/train:1 --nodes 2 python train.py");
  }
  for (const auto& [option, image] :
       {std::pair("--image", options.image), std::pair("--hvdrun-image", options.hvdrun_image)}) {
    if (!image.empty() && !launch::is_image_name(image)) {
      return Error(Code::kInvalid,
                   std::string(option) + " '" + launch::shown_text(image) + "' cannot be the name of an image");
    }
  }
  if (!is_label(options.name)) {
    return Error(Code::kInvalid, "--name '" + options.name + "': expected a small letter, then up to " +
                                     std::to_string(kLongestName - 1) +
                                     " small letters, digits and -, as pods' names have");
  }
  return {};
}

Result<std::string> manifest_text(const ManifestOptions& options) {
  for (const std::string& word : options.words) {
    if (!is_unicode(word)) {
      return Error(Code::kInvalid, "'" + launch::shown_text(word) +
                                       "' has bytes that are not UTF-8, which a manifest cannot hold; put them into a "
                                       "file of the image");
    }
  }
  std::vector<Yaml> objects = options.kind == "jobset"     ? jobset_of(options)
                              : options.kind == "trainjob" ? trainjob_of(options)
                                                           : jobs_of(options);
  if (options.secret_name.empty()) {
    const Yaml secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", key_name(options)}}},
                         {"immutable", true},
                         {"stringData", {{"key", options.secret}}}};
    objects.insert(objects.begin(), secret);
  }
  std::string text;
  for (const Yaml& object : objects) {
    text += text.empty() ? "" : "---\n";
    write(text, object, 0);
  }
  return text;
}

}  // namespace hvd::cli
