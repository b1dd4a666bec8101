#include <algorithm>
#include <iterator>
#include <set>

#include "launcher/job/nearest_name.h"
#include "launcher/jobfile/form_reader.h"
#include "launcher/jobfile/variable_text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kMountRoot = "AZ_BATCHAI_JOB_MOUNT_ROOT";
constexpr std::string_view kInputVariables = "AZ_BATCHAI_INPUT_";
constexpr std::string_view kOutputVariables = "AZ_BATCHAI_OUTPUT_";
constexpr const char* kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

class NameFinder {
 public:
  NameFinder(const JobFile& job, const std::string& file) : job_(job), file_(file) {}

  void look_at(const DocValue& value) {
    for (const DocValue& item : value.items) {
      look_at(item);
    }
    if (value.kind != DocValue::Kind::kText) {
      return;
    }
    const auto pieces = split_variables(value.text);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].is_variable) {
        continue;
      }
      if (pieces[i].text == kMountRoot && i + 1 < pieces.size() && !pieces[i + 1].is_variable) {
        look_at_mount(pieces[i + 1].text, i + 2 < pieces.size(), value.at);
      } else if (pieces[i].text.starts_with(kInputVariables) || pieces[i].text.starts_with(kOutputVariables)) {
        look_at_directory(pieces[i].text, value.at);
      }
    }
  }

  Notices take() { return std::move(notices_); }

 private:
  // `rest` is what follows the mount root: "/share/train.py". What preparation mounts or makes there is its own affair.
  void look_at_mount(std::string_view rest, bool goes_on, Position at) {
    if (!rest.starts_with('/')) {
      return;
    }
    const std::size_t end = rest.find_first_not_of(kNameLetters, 1);
    const std::string name(rest.substr(1, end == std::string_view::npos ? end : end - 1));
    const bool is_whole = end != std::string_view::npos || !goes_on;
    const auto is_it = [&name](const Mount& mount) {
      return !mount.is_of_cluster && (mount.name == name || mount.name.starts_with(name + "/"));
    };
    if (name.empty() || !is_whole || std::any_of(job_.mounts.begin(), job_.mounts.end(), is_it) ||
        job_.preparation.find("/" + name) != std::string::npos) {
      return;
    }
    std::vector<std::string> names;
    for (const Mount& mount : job_.mounts) {
      names.push_back(mount.name);
    }
    tell(name, at,
         "nothing is mounted at $" + std::string(kMountRoot) + "/" + name + did_you_mean("", name, names) +
             "; what the job's programs write there is removed at its end");
  }

  void look_at_directory(const std::string& name, Position at) {
    const bool is_input = name.starts_with(kInputVariables);
    const std::string_view prefix = is_input ? kInputVariables : kOutputVariables;
    std::vector<std::string> ids;
    if (is_input) {
      std::transform(job_.inputs.begin(), job_.inputs.end(), std::back_inserter(ids),
                     [](const auto& d) { return d.id; });
    } else {
      std::transform(job_.outputs.begin(), job_.outputs.end(), std::back_inserter(ids),
                     [](const auto& d) { return d.id; });
    }
    const std::string id = name.substr(prefix.size());
    const auto is_it = [&name](const JobVariable& variable) { return variable.name == name; };
    if (std::find(ids.begin(), ids.end(), id) != ids.end() ||
        std::any_of(job_.variables.begin(), job_.variables.end(), is_it) ||
        job_.preparation.find(name) != std::string::npos) {
      return;
    }
    tell(name, at,
         "nothing here sets $" + name + ": the file has no " + (is_input ? "input" : "output") + " directory '" + id +
             "'" + did_you_mean(std::string(prefix), id, ids));
  }

  static std::string did_you_mean(const std::string& prefix, const std::string& name,
                                  const std::vector<std::string>& names) {
    const std::string near = nearest_name(name, names);
    return near.empty() ? "" : " (did you mean " + (prefix.empty() ? "'" + near + "'" : "$" + prefix + near) + "?)";
  }

  void tell(const std::string& name, Position at, const std::string& what) {
    if (told_.insert(name).second) {
      notices_.push_back(error_at(file_, at, what).message());
    }
  }

  const JobFile& job_;
  const std::string& file_;
  std::set<std::string> told_;
  Notices notices_;
};

}  // namespace

Notices lost_names(const DocValue& root, const JobFile& job, const std::string& file) {
  NameFinder finder(job, file);
  finder.look_at(root);
  return finder.take();
}

}  // namespace hvd::launch
