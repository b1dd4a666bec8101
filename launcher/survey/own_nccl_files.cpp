#include "launcher/survey/own_nccl_files.h"

#include <fstream>
#include <string_view>

#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

void add_names_in(const std::string& path, std::vector<std::string>& names) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::string_view entry = trimmed(line);
    const std::size_t equals = entry.find('=');
    if (equals != std::string_view::npos && !entry.starts_with('#')) {
      names.emplace_back(trimmed(entry.substr(0, equals)));
    }
  }
}

}  // namespace

std::vector<std::string> own_nccl_names(const std::vector<std::string>& environment, const std::string& root) {
  std::vector<std::string> names;
  add_names_in(root + "/etc/nccl.conf", names);
  const std::string named = value_in(environment, "NCCL_CONF_FILE");
  add_names_in(named.empty() ? value_in(environment, "HOME") + "/.nccl.conf" : named, names);
  return names;
}

}  // namespace hvd::launch
