#include "launcher/service/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "launcher/job/host_list.h"
#include "launcher/job/text_file.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/service/file_systems.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Type = Field::Type;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostHosts = 10'000;
constexpr double kMostSeconds = 1e6;

constexpr std::array<const char*, 5> kContainerWords = {"auto", "podman", "docker", "apptainer", "none"};

constexpr std::array kDefaultFields = {
    Field{"container", Type::kText, "what runs container images, as --container", false, nullptr, 0, 0,
          kContainerWords},
    Field{"rsh", Type::kText, "command that reaches the hosts, as --rsh"},
    Field{"sshConfig", Type::kText, "as --ssh-config"},
    Field{"sshIdentityFile", Type::kText, "as --ssh-identity-file"},
    Field{"sshPort", Type::kInteger, "as --ssh-port", false, nullptr, 1, 65535},
    Field{"startTimeout", Type::kTextOrNumber, "seconds, as --start-timeout"},
    Field{"reconnectTimeout", Type::kTextOrNumber, "seconds, as --reconnect-timeout"},
    Field{"grace", Type::kTextOrNumber, "seconds, as --grace"}};
constexpr Schema kDefaults = {"the defaults of a cluster", kDefaultFields};

// This table is not constexpr, because file_system_schema() is a function that runs at start-up.
const std::array kClusterFields = {
    Field{"$schema", Type::kText, "for editors"},
    Field{"hosts", Type::kTexts, "entries as in -H, with slots, SSH ports and GPUs: node1:4, node[2-4]:2222:2@0,1",
          true},
    Field{"size", Type::kText, "what the hosts are called, as STANDARD_NC6; only shown"},
    Field{"mounts", Type::kVariables, "directories of the hosts by the names of mounts, as --mount"},
    Field{"mountRoot", Type::kText, "directory of the hosts below which all other mounts are, as --mount-root"},
    Field{"fileSystems", Type::kMaps, "how the hosts mount what a job names, for the job alone", false,
          &file_system_schema()},
    Field{"env", Type::kVariables, "environment variables of its jobs, as -x"},
    Field{"defaults", Type::kMap, "what a job has where its submit says nothing else", false, &kDefaults}};
const Schema kCluster = {"a cluster's file", kClusterFields};

std::string text_at(const DocValue& map, const char* key) {
  const DocValue* value = map.find(key);
  return value == nullptr ? "" : value->text;
}

// Returns the length of the UTF-8 character at `at`; 0: there is none.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  const unsigned first = byte(0);
  const std::size_t size = first < 0x80U ? 1 : first < 0xC2U ? 0 : first < 0xE0U ? 2 : first < 0xF0U ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  const unsigned second = byte(1);
  const bool is_outside = (first == 0xE0U && second < 0xA0U) || (first == 0xEDU && second > 0x9FU) ||
                          (first == 0xF0U && second < 0x90U) || (first == 0xF4U && second > 0x8FU) || first > 0xF4U;
  return is_outside ? 0 : size;
}

bool is_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_at(text, at);
    if (size == 0) {
      return false;
    }
    at += size;
  }
  return true;
}

// Refuses bytes that are not UTF-8. The record could not hold them, and a replacement would mean something else. An
// escape in YAML may produce such bytes too.
Result<void> check_encoding(const DocValue& value, const std::string& file) {
  const char* const kWhat = "these bytes are no text in UTF-8, as which the cluster is kept";
  if (!is_text(value.text)) {
    return error_at(file, value.at, kWhat);
  }
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (i < value.keys.size() && !is_text(value.keys[i])) {
      return error_at(file, value.key_at[i], kWhat);
    }
    HVD_TRY(check_encoding(value.items[i], file));
  }
  return {};
}

class ClusterReader {
 public:
  explicit ClusterReader(const std::string& file) : file_(file) {}

  Result<Cluster> read(const DocValue& root) {
    HVD_TRY(read_hosts(*root.find("hosts")));
    HVD_TRY_ASSIGN(cluster_.size, line_of(root, "size"));
    HVD_TRY(read_mounts(root));
    if (const DocValue* env = root.find("env"); env != nullptr) {
      HVD_TRY(read_env(*env));
    }
    if (const DocValue* defaults = root.find("defaults"); defaults != nullptr) {
      HVD_TRY(read_defaults(*defaults));
    }
    return std::move(cluster_);
  }

 private:
  [[nodiscard]] Error refuse(Position at, const std::string& what) const { return error_at(file_, at, what); }

  Result<std::string> line_of(const DocValue& map, const char* key) const {
    const DocValue* value = map.find(key);
    if (value == nullptr) {
      return std::string();
    }
    if (!is_plain_line(value->text)) {
      return refuse(value->at, std::string(key) + ": control characters stand in it");
    }
    return value->text;
  }

  Result<void> read_hosts(const DocValue& hosts) {
    std::vector<const DocValue*> entries;
    if (hosts.kind != DocValue::Kind::kList) {
      entries.push_back(&hosts);
    }
    for (const DocValue& item : hosts.items) {
      entries.push_back(&item);
    }
    std::set<std::string> seen;
    for (const DocValue* entry : entries) {
      const auto parsed = parse_host_list(entry->text);
      if (!parsed.ok()) {
        return refuse(entry->at, shown_text(parsed.error().message()));
      }
      for (const HostSpec& host : parsed.value()) {
        if (!seen.insert(host.name).second) {
          return refuse(entry->at, "the host " + host.name + " is named twice; give it all of its slots in one entry");
        }
        cluster_.hosts.push_back(host);
      }
      if (cluster_.hosts.size() > kMostHosts) {
        return refuse(entry->at, "more than " + std::to_string(kMostHosts) + " hosts");
      }
    }
    return cluster_.hosts.empty() ? Result<void>(refuse(hosts.at, "a cluster needs a host")) : Result<void>();
  }

  Result<std::string> directory_of(const DocValue& value, const std::string& what) const {
    if (value.text.empty() || value.text.front() != '/' || !is_plain_line(value.text)) {
      return refuse(value.at,
                    what + ": expected the absolute path of a directory on the hosts, found " + value.described());
    }
    std::string path = value.text;
    while (path.size() > 1 && path.ends_with('/')) {
      path.pop_back();
    }
    return path;
  }

  Result<void> read_mounts(const DocValue& root) {
    if (const DocValue* above = root.find("mountRoot"); above != nullptr) {
      HVD_TRY_ASSIGN(cluster_.mount_root, directory_of(*above, "mountRoot"));
    }
    const DocValue* mounts = root.find("mounts");
    for (std::size_t i = 0; mounts != nullptr && i < mounts->keys.size(); ++i) {
      if (!is_inner_path(mounts->keys[i])) {
        return refuse(mounts->key_at[i], "'" + shown_text(mounts->keys[i]) + "' cannot be where something is mounted");
      }
      HVD_TRY_ASSIGN(std::string directory, directory_of(mounts->items[i], "mounts"));
      cluster_.mounts.emplace_back(mounts->keys[i], std::move(directory));
    }
    return read_mounted(root.find("fileSystems"));
  }

  Result<void> read_mounted(const DocValue* list) {
    if (list == nullptr) {
      return {};
    }
    HVD_TRY_ASSIGN(cluster_.file_systems, read_file_systems(*list, file_));
    for (std::size_t i = 0; i < cluster_.file_systems.size(); ++i) {
      const std::string& name = cluster_.file_systems[i].name;
      const auto is_same = [&name](const auto& mount) { return mount.first == name; };
      if (std::any_of(cluster_.mounts.begin(), cluster_.mounts.end(), is_same)) {
        return refuse(list->items[i].at, "'" + shown_text(name) + "' is in 'mounts' too; it is mounted or linked");
      }
    }
    return {};
  }

  Result<void> read_env(const DocValue& env) {
    for (std::size_t i = 0; i < env.keys.size(); ++i) {
      if (!is_variable_name(env.keys[i])) {
        return refuse(env.key_at[i], "'" + shown_text(env.keys[i]) + "' cannot be the name of a variable");
      }
      if (env.items[i].kind == DocValue::Kind::kNull) {
        return refuse(env.key_at[i], "the variable " + env.keys[i] + " has no value");
      }
      if (env.items[i].text.find('\0') != std::string::npos) {
        return refuse(env.items[i].at, "the value holds a NUL, which no variable can");
      }
      cluster_.env.emplace_back(env.keys[i], env.items[i].text);
    }
    return {};
  }

  Result<std::optional<double>> seconds_of(const DocValue& map, const char* key) const {
    const DocValue* value = map.find(key);
    if (value == nullptr) {
      return std::optional<double>();
    }
    const std::optional<double> seconds = parse_number<double>(value->text, 0, kMostSeconds);
    if (!seconds) {
      return refuse(value->at, std::string(key) + ": expected seconds from 0 to 1000000, found " + value->described());
    }
    return seconds;
  }

  Result<void> read_defaults(const DocValue& map) {
    ClusterDefaults& defaults = cluster_.defaults;
    defaults.container = lowered(text_at(map, "container"));
    HVD_TRY_ASSIGN(defaults.rsh, line_of(map, "rsh"));
    HVD_TRY_ASSIGN(defaults.ssh_config, line_of(map, "sshConfig"));
    HVD_TRY_ASSIGN(defaults.ssh_identity_file, line_of(map, "sshIdentityFile"));
    if (const DocValue* port = map.find("sshPort"); port != nullptr) {
      defaults.ssh_port = parse_number<int>(port->text).value_or(0);
    }
    HVD_TRY_ASSIGN(defaults.start_timeout_s, seconds_of(map, "startTimeout"));
    HVD_TRY_ASSIGN(defaults.reconnect_timeout_s, seconds_of(map, "reconnectTimeout"));
    HVD_TRY_ASSIGN(defaults.grace_s, seconds_of(map, "grace"));
    return {};
  }

  const std::string& file_;
  Cluster cluster_;
};

Json defaults_json(const ClusterDefaults& defaults) {
  Json json = Json::object();
  const auto put = [&json](const char* key, const std::string& text) {
    if (!text.empty()) {
      json[key] = text;
    }
  };
  put("container", defaults.container);
  put("rsh", defaults.rsh);
  put("sshConfig", defaults.ssh_config);
  put("sshIdentityFile", defaults.ssh_identity_file);
  if (defaults.ssh_port) {
    json["sshPort"] = *defaults.ssh_port;
  }
  const auto put_seconds = [&json](const char* key, const std::optional<double>& seconds) {
    if (seconds) {
      json[key] = *seconds;
    }
  };
  put_seconds("startTimeout", defaults.start_timeout_s);
  put_seconds("reconnectTimeout", defaults.reconnect_timeout_s);
  put_seconds("grace", defaults.grace_s);
  return json;
}

}  // namespace

Result<void> check_cluster_name(std::string_view name) {
  if (!is_job_name(name) || name.front() == '-') {
    return Error(Code::kInvalid, "'" + shown_text(name) +
                                     "' cannot be the name of a cluster; expected up to 64 letters, digits, _ and, but "
                                     "for the first, -");
  }
  return {};
}

Result<LoadedCluster> parse_cluster(std::string_view text, const std::string& file, const std::string& name) {
  HVD_TRY(check_cluster_name(name));
  HVD_TRY_ASSIGN(const DocValue root, parse_document(text, file));
  if (root.kind != DocValue::Kind::kMap) {
    return error_at(file, root.at,
                    "expected keys with values, as in 'hosts: [node1, node2]', found " + root.described());
  }
  if (const DocValue* properties = root.find("properties")) {
    return error_at(file, properties->at,
                    "this is Batch AI's file of a cluster, by which machines were made; say which machines there are: "
                    "hvdrun cluster add " +
                        name +
                        " -H node1:4,node2:4. What it mounted is a job's --mount NAME=DIR, or "
                        "'mounts:' in a file as in hvdrun help clusters");
  }
  LoadedCluster loaded;
  HVD_TRY(check_encoding(root, file));
  HVD_TRY(check(root, kCluster, file, loaded.notices));
  for (std::string& notice : loaded.notices) {
    notice += notice.ends_with('?') ? "" : "; hvdrun help clusters shows those that do";
  }
  HVD_TRY_ASSIGN(loaded.cluster, ClusterReader(file).read(root));
  loaded.cluster.name = name;
  return loaded;
}

Result<LoadedCluster> read_cluster(const std::string& file, const std::string& name) {
  HVD_TRY_ASSIGN(const std::string text, read_text_file(file, "the cluster's file"));
  return parse_cluster(text, file, name);
}

std::string host_entry(const HostSpec& host) {
  const bool is_v6 = host.name.find(':') != std::string::npos;
  std::string text = host.user.empty() ? "" : host.user + "@";
  text += is_v6 ? "[" + host.name + "]" : host.name;
  text += (host.port == 0 ? "" : ":" + std::to_string(host.port)) + ":" + std::to_string(host.slots);
  for (std::size_t i = 0; i < host.gpus.size(); ++i) {
    text += (i == 0 ? "@" : ",") + std::to_string(host.gpus[i]);
  }
  return text;
}

std::string cluster_text(const Cluster& cluster) {
  Json json = Json::object();
  json["hosts"] = Json::array();
  for (const HostSpec& host : cluster.hosts) {
    json["hosts"].push_back(host_entry(host));
  }
  if (!cluster.size.empty()) {
    json["size"] = cluster.size;
  }
  for (const auto& [name, directory] : cluster.mounts) {
    json["mounts"][name] = directory;
  }
  for (const FileSystem& system : cluster.file_systems) {
    Json entry = Json::object();
    for (const auto& [key, value] : file_system_keys(system)) {
      entry[key] = value;
    }
    json["fileSystems"].push_back(std::move(entry));
  }
  if (!cluster.mount_root.empty()) {
    json["mountRoot"] = cluster.mount_root;
  }
  for (const auto& [name, value] : cluster.env) {
    json["env"][name] = value;
  }
  if (const Json defaults = defaults_json(cluster.defaults); !defaults.empty()) {
    json["defaults"] = defaults;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hvd::launch
