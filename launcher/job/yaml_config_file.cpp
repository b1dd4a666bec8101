#include <algorithm>
#include <optional>
#include <set>

#include <yaml-cpp/yaml.h>

#include "launcher/job/config_mounts.h"
#include "launcher/job/nearest_name.h"
#include "launcher/job/text_file.h"
#include "launcher/job/tunable.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Returns "; did you mean params.cycle_time_ms?", or nothing where no setting has a name like this one.
std::string meant_setting(const std::string& full) {
  std::vector<std::string> keys;
  for (const Tunable& tunable : tunables()) {
    keys.emplace_back(tunable.key);
  }
  const std::string near = nearest_name(full, keys);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

// Returns "; did you mean params?", or the sections that there are.
std::string meant_section(const std::string& name) {
  const std::vector<std::string> sections = {"params",          "autotune", "timeline",   "stall_check",
                                             "library_options", "logging",  "controller", "mounts"};
  if (const std::string near = nearest_name(name, sections); !near.empty()) {
    return "; did you mean " + near + "?";
  }
  std::string list;
  for (const std::string& section : sections) {
    add_to_list(list, section);
  }
  return "; there are " + list;
}

class ConfigReader {
 public:
  explicit ConfigReader(std::string file) : file_(std::move(file)) {}

  Result<Settings> read(const YAML::Node& root) {
    if (root.IsNull()) {
      return Settings{};
    }
    if (!root.IsMap()) {
      return at(root, "expected sections, as in 'params:'");
    }
    for (const auto& entry : root) {
      HVD_TRY_ASSIGN(const std::string name, key_of(entry.first, ""));
      if (name == "mounts") {
        HVD_TRY(read_mounts(entry.second));
      } else if (name == "controller") {
        HVD_TRY(read_controller(entry.second));
      } else {
        HVD_TRY(read_section(name, entry.first, entry.second));
      }
    }
    return std::move(settings_);
  }
  ConfigMounts take_mounts() { return std::move(mounts_); }
  std::string take_controller() { return std::move(controller_); }

 private:
  [[nodiscard]] Error at(const YAML::Node& node, const std::string& what) const {
    const YAML::Mark mark = node.Mark();
    return Error(Code::kInvalid,
                 file_ + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1) + ": " + what);
  }

  Result<std::string> key_of(const YAML::Node& node, const std::string& section) {
    if (!node.IsScalar()) {
      return at(node, "expected a name");
    }
    if (!seen_.insert(section + node.Scalar()).second) {
      return at(node, "'" + section + node.Scalar() + "' is given twice");
    }
    return node.Scalar();
  }

  Result<void> read_controller(const YAML::Node& value) {
    if (value.IsNull()) {
      return {};
    }
    // horovodrun takes capital letters here too, and nowhere else.
    std::string name = lowered(value.IsScalar() ? value.Scalar() : "");
    if (name != "gloo" && name != "mpi") {
      return at(value, "expected gloo or mpi");
    }
    controller_ = std::move(name);
    return {};
  }

  Result<void> read_mounts(const YAML::Node& section) {
    if (section.IsNull()) {
      return {};
    }
    if (!section.IsMap()) {
      return at(section, "expected names with directories below 'mounts:'");
    }
    for (const auto& entry : section) {
      HVD_TRY_ASSIGN(const std::string name, key_of(entry.first, "mounts."));
      if (!entry.second.IsScalar() || !entry.second.Scalar().starts_with('/')) {
        return at(entry.second, "mounts." + name + ": expected the absolute path of a directory on the nodes");
      }
      mounts_.emplace_back(name, entry.second.Scalar());
    }
    return {};
  }

  Result<void> read_section(const std::string& name, const YAML::Node& key, const YAML::Node& section) {
    const auto all = tunables();
    const bool is_known = std::any_of(all.begin(), all.end(), [&name](const Tunable& tunable) {
      return std::string_view(tunable.key).starts_with(name + ".");
    });
    if (!is_known) {
      return at(key, "unknown section '" + name + "'" + meant_section(name));
    }
    if (section.IsNull()) {
      return {};
    }
    if (!section.IsMap()) {
      return at(section, "expected settings below '" + name + ":'");
    }
    for (const auto& entry : section) {
      HVD_TRY(read_setting(name, entry.first, entry.second));
    }
    return {};
  }

  Result<void> read_setting(const std::string& section, const YAML::Node& key, const YAML::Node& value) {
    HVD_TRY_ASSIGN(const std::string name, key_of(key, section + "."));
    const bool is_affinity = name == "ccl_bgt_affinity" || name == "mlsl_bgt_affinity";  // former names
    const std::string full = section + "." + (is_affinity ? "thread_affinity" : name);
    if (full == "logging.hide_timestamp") {
      return {};  // an old name, which horovodrun ignores too
    }
    const auto all = tunables();
    const auto found =
        std::find_if(all.begin(), all.end(), [&full](const Tunable& tunable) { return full == tunable.key; });
    if (found == all.end()) {
      return at(key, "unknown setting '" + full + "'" + meant_setting(full));
    }
    if (value.IsNull()) {
      return {};
    }
    if (!value.IsScalar()) {
      return at(value, full + ": expected one value");
    }
    auto text = variable_value(*found, value.Scalar(), full);
    if (!text.ok()) {
      return at(value, text.error().message());
    }
    settings_.emplace_back(found->variable, std::move(text).value());
    return {};
  }

  const std::string file_;
  std::set<std::string> seen_;
  Settings settings_;
  ConfigMounts mounts_;
  std::string controller_;
};

Result<Settings> read_by(ConfigReader& reader, const std::string& text, const std::string& file) {
  try {
    return reader.read(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    return Error(Code::kInvalid, file + ":" + std::to_string(error.mark.line + 1) + ":" +
                                     std::to_string(error.mark.column + 1) + ": " + error.msg);
  }
}

}  // namespace

Result<Settings> parse_config_file(const std::string& text, const std::string& file) {
  ConfigReader reader(file);
  return read_by(reader, text, file);
}

Result<Settings> read_config_file(const std::string& file) {
  HVD_TRY_ASSIGN(const std::string text, read_text_file(file, "the configuration file"));
  return parse_config_file(text, file);
}

Result<std::string> parse_config_controller(const std::string& text, const std::string& file) {
  ConfigReader reader(file);
  HVD_TRY(read_by(reader, text, file));
  return reader.take_controller();
}

Result<std::string> read_config_controller(const std::string& file) {
  HVD_TRY_ASSIGN(const std::string text, read_text_file(file, "the configuration file"));
  return parse_config_controller(text, file);
}

Result<ConfigMounts> parse_config_mounts(const std::string& text, const std::string& file) {
  ConfigReader reader(file);
  HVD_TRY(read_by(reader, text, file));
  return reader.take_mounts();
}

Result<ConfigMounts> read_config_mounts(const std::string& file) {
  HVD_TRY_ASSIGN(const std::string text, read_text_file(file, "the configuration file"));
  return parse_config_mounts(text, file);
}

}  // namespace hvd::launch
