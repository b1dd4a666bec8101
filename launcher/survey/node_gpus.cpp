#include "launcher/survey/node_gpus.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "launcher/process/spawn.h"
#include "launcher/survey/own_gpus.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCuda = "CUDA_VISIBLE_DEVICES";
constexpr const char* kRocr = "ROCR_VISIBLE_DEVICES";
constexpr const char* kHip = "HIP_VISIBLE_DEVICES";
constexpr const char* kLevelZero = "ZE_AFFINITY_MASK";

bool is_set(const std::vector<std::string>& environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return entry.compare(0, name.size() + 1, name + "=") == 0; });
}

struct AmdGpu {
  std::string uuid;   // as ROCm writes it: "GPU-3cd2f1a9e0b14c57"; empty: it has none
  std::string minor;  // of its /dev/dri/renderD
};

// Reads a node of the driver's topology; nothing for a processor, or for a GPU of another container.
std::optional<AmdGpu> amd_gpu_of(const fs::path& root, const fs::path& node) {
  std::ifstream in(node / "properties");
  AmdGpu gpu;
  std::uint64_t simds = 0;
  std::string key;
  for (std::uint64_t value = 0; in >> key >> value;) {
    if (key == "simd_count") {
      simds = value;
    } else if (key == "drm_render_minor") {
      gpu.minor = std::to_string(value);
    } else if (key == "unique_id" && value != 0) {
      gpu.uuid = formatted("GPU-%016llx", static_cast<unsigned long long>(value));
    }
  }
  std::error_code failed;
  const bool is_ours = simds > 0 && fs::exists(root / ("dev/dri/renderD" + gpu.minor), failed);
  return is_ours ? std::optional(gpu) : std::nullopt;
}

// Returns them in the order of their numbers, which is that of the nodes.
std::vector<AmdGpu> amd_gpus(const fs::path& root) {
  std::vector<AmdGpu> gpus;
  const fs::path nodes = root / "sys/class/kfd/kfd/topology/nodes";
  std::error_code failed;
  for (int number = 0; fs::exists(nodes / std::to_string(number), failed); ++number) {
    if (auto gpu = amd_gpu_of(root, nodes / std::to_string(number))) {
      gpus.push_back(std::move(*gpu));
    }
  }
  return gpus;
}

std::int32_t numa_node_of(const fs::path& root, const AmdGpu& gpu) {
  std::int32_t node = -1;
  std::ifstream in(root / ("sys/class/drm/renderD" + gpu.minor) / "device/numa_node");
  return in >> node ? node : -1;
}

std::vector<std::string> numbers_below(std::size_t count) {
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    numbers.push_back(std::to_string(i));
  }
  return numbers;
}

// Returns the GPUs that a list of numbers or UUIDs leaves.
std::vector<std::size_t> chosen_of(const std::vector<AmdGpu>& gpus, const std::vector<std::string>& words) {
  std::vector<std::size_t> chosen;
  for (const std::string& word : words) {
    std::size_t number = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (failed != std::errc() || end != word.data() + word.size()) {
      number = static_cast<std::size_t>(
          std::find_if(gpus.begin(), gpus.end(), [&word](const AmdGpu& gpu) { return gpu.uuid == word; }) -
          gpus.begin());
    }
    if (number >= gpus.size()) {
      break;
    }
    chosen.push_back(number);
  }
  return chosen;
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::string_view word = trimmed(take_until(list, ','));
    if (!word.empty()) {
      words.emplace_back(word);
    }
  }
  return words;
}

NodeGpus amd_node_gpus(const std::vector<std::string>& environment, const fs::path& root) {
  const std::vector<AmdGpu> cards = amd_gpus(root);
  NodeGpus found{kRocr, numbers_below(cards.size()), {}};
  if (is_set(environment, kRocr)) {
    found.names = words_of(value_in(environment, kRocr));
  }
  std::vector<std::size_t> chosen = chosen_of(cards, found.names);
  found.names.resize(chosen.size());
  if (is_set(environment, kHip)) {
    const std::vector<std::size_t> all = std::exchange(chosen, {});
    found.variable = kHip;
    found.names = visible_gpus(numbers_below(all.size()), value_in(environment, kHip));
    for (const std::string& name : found.names) {
      chosen.push_back(all[std::stoul(name)]);
    }
  }
  for (const std::size_t card : chosen) {
    found.near.push_back(numa_node_of(root, cards[card]));
  }
  return found;
}

}  // namespace

NodeGpus node_gpus(const std::vector<std::string>& environment, Deadline deadline, const std::string& root) {
  NodeGpus found{kCuda, own_gpus(environment, deadline, root), {}};
  found.near = numa_nodes_of_gpus(found.names, root);
  if (found.names.empty()) {
    found = amd_node_gpus(environment, root.empty() ? "/" : root);
  }
  if (found.names.empty()) {
    found = NodeGpus{kLevelZero, words_of(value_in(environment, kLevelZero)), {}};
    found.near.assign(found.names.size(), -1);
  }
  return found.names.empty() ? NodeGpus{} : found;
}

}  // namespace hvd::launch
