#include "launcher/transport/agent_images.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include <openssl/evp.h>

#include "launcher/process/own_process.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// The processors that scripts/wheel makes agents for.
constexpr std::array<const char*, 2> kProcessors = {"x86_64", "aarch64"};

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return hex(std::span(digest).first(size));
}

// Returns the file's contents; "" if it cannot be read.
std::string contents_of(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? std::move(text).str() : "";
}

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
      std::string sha256 = sha256_hex(bytes);
      images.all.push_back({std::move(bytes), std::move(sha256), machine});
    }
  };
  const std::string own = own_processor();
  add(contents_of(path), own);
  if (images.all.empty()) {
    return Error(Code::kNotFound, "cannot read the agent executable '" + path +
                                      "' that is to run on the nodes; is "
                                      "hvdrun installed completely?");
  }
  for (const std::string machine : kProcessors) {
    if (machine != own) {
      add(contents_of(path + "-" + machine), machine);
    }
  }
  return images;
}

}  // namespace hvd::launch
