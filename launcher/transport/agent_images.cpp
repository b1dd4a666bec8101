#include "launcher/transport/agent_images.h"

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/process/own_process.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"
#include "runtime/rendezvous/sha256.h"

namespace hvd::launch {
namespace {

// The processors that scripts/wheel makes agents for.
constexpr std::array<const char*, 2> kProcessors = {"x86_64", "aarch64"};

}  // namespace

const AgentImage* AgentImages::find(const std::string& machine) const {
  const auto found = std::find_if(all.begin(), all.end(), [&machine](const AgentImage& image) {
    return machine.empty() || image.machine == machine;
  });
  return found == all.end() ? nullptr : &*found;
}

Result<AgentImages> load_agent_images(const std::string& path) {
  AgentImages images;
  const auto add = [&images](std::string bytes, const std::string& machine) {
    if (!bytes.empty()) {
      std::string sha256 = hex(sha256_of(as_bytes(bytes)));
      images.all.push_back({std::move(bytes), std::move(sha256), machine});
    }
  };
  const std::string own = own_processor();
  add(text_of_file(path), own);
  if (images.all.empty()) {
    return Error(Code::kNotFound, "cannot read the agent executable '" + path +
                                      "' that is to run on the nodes; is "
                                      "hvdrun installed completely?");
  }
  for (const std::string machine : kProcessors) {
    if (machine != own) {
      add(text_of_file(path + "-" + machine), machine);
    }
  }
  return images;
}

}  // namespace hvd::launch
