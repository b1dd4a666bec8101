#include "launcher/survey/own_gpus.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "launcher/process/output_of.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

namespace fs = std::filesystem;

// Returns the value of "Key: value" in one of the driver's files.
std::string field_of(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.size() > key.size() && line.compare(0, key.size(), key) == 0 && line[key.size()] == ':') {
      return std::string(trimmed(std::string_view(line).substr(key.size() + 1)));
    }
  }
  return "";
}

// Returns them in the order of their names, or nothing on failure. The iterator's own ++ would throw.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool has_mig_instances(const fs::path& root, const std::string& minor) {
  const auto entries = entries_of(root / ("proc/driver/nvidia/capabilities/gpu" + minor + "/mig"));
  return std::any_of(entries.begin(), entries.end(),
                     [](const fs::path& entry) { return entry.filename().string().compare(0, 2, "gi") == 0; });
}

struct Card {
  std::string uuid;
  std::string address;  // on the PCI bus: "0000:9a:00.0"
};

// Returns them in the order of their numbers, or nothing when the files are missing or do not say.
std::optional<std::vector<Card>> cards_of_driver(const fs::path& root) {
  const auto folders = entries_of(root / "proc/driver/nvidia/gpus");  // named by address, which is the order
  std::vector<Card> cards;
  for (const fs::path& folder : folders) {
    const std::string uuid = field_of(folder / "information", "GPU UUID");
    const std::string minor = field_of(folder / "information", "Device Minor");
    if (uuid.compare(0, 4, "GPU-") != 0 || uuid.find('?') != std::string::npos || minor.empty() ||
        has_mig_instances(root, minor)) {
      return std::nullopt;
    }
    // A container sees the files of all GPUs, but only its own devices.
    std::error_code failed;
    if (fs::exists(root / ("dev/nvidia" + minor), failed)) {
      cards.push_back(Card{uuid, folder.filename()});
    }
  }
  return folders.empty() ? std::nullopt : std::optional(cards);
}

std::vector<std::string> uuids_of(const std::vector<Card>& cards) {
  std::vector<std::string> uuids;
  for (const Card& card : cards) {
    uuids.push_back(card.uuid);
  }
  return uuids;
}

// Returns -1 also where the machine has no such nodes, or its firmware does not say: then the file holds -1.
std::int32_t numa_node_of(const fs::path& root, const Card& card) {
  std::int32_t node = -1;
  std::ifstream in(root / "sys/bus/pci/devices" / card.address / "numa_node");
  return in >> node ? node : -1;
}

std::optional<std::size_t> find_gpu(const std::vector<std::string>& gpus, std::string_view name) {
  std::size_t number = 0;
  const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (failed == std::errc() && end == name.data() + name.size()) {
    return number < gpus.size() ? std::optional(number) : std::nullopt;
  }
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < gpus.size() && !name.empty(); ++i) {
    if (gpus[i].compare(0, name.size(), name) == 0) {
      if (found) {
        return std::nullopt;
      }
      found = i;
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> gpus_in_list(std::string_view nvidia_smi_output) {
  std::vector<std::string> gpus;
  std::string last_whole;  // the GPU whose instances follow
  while (!nvidia_smi_output.empty()) {
    const std::string_view line = take_until(nvidia_smi_output, '\n');
    constexpr std::string_view kMark = "(UUID: ";
    const auto begin = line.rfind(kMark);
    const auto close = line.rfind(')');
    if (begin == std::string_view::npos || close == std::string_view::npos || close < begin) {
      continue;
    }
    const std::string uuid(line.substr(begin + kMark.size(), close - begin - kMark.size()));
    if (uuid.compare(0, 4, "MIG-") == 0 && !gpus.empty() && gpus.back() == last_whole) {
      gpus.pop_back();
    }
    last_whole = uuid.compare(0, 4, "GPU-") == 0 ? uuid : "";
    gpus.push_back(uuid);
  }
  return gpus;
}

std::vector<std::string> visible_gpus(const std::vector<std::string>& gpus, std::string_view value) {
  std::vector<std::string> visible;
  std::vector<std::size_t> seen;
  for (;;) {
    const std::size_t end = std::min(value.find(','), value.size());
    const std::string_view name = trimmed(value.substr(0, end));
    const auto found = find_gpu(gpus, name);
    if (!found || std::find(seen.begin(), seen.end(), *found) != seen.end()) {
      return visible;
    }
    seen.push_back(*found);
    visible.emplace_back(name);
    if (end == value.size()) {
      return visible;
    }
    value.remove_prefix(end + 1);
  }
}

std::vector<std::int32_t> numa_nodes_of_gpus(const std::vector<std::string>& gpus, const std::string& root) {
  const fs::path base = root.empty() ? "/" : root;
  const std::vector<Card> cards = cards_of_driver(base).value_or(std::vector<Card>());
  const std::vector<std::string> uuids = uuids_of(cards);
  std::vector<std::int32_t> nodes;
  for (const std::string& gpu : gpus) {
    const auto found = find_gpu(uuids, gpu);
    nodes.push_back(found ? numa_node_of(base, cards[*found]) : -1);
  }
  return nodes;
}

std::vector<std::string> own_gpus(const std::vector<std::string>& environment, Deadline deadline,
                                  const std::string& root) {
  std::vector<std::string> gpus;
  if (const auto cards = cards_of_driver(root.empty() ? "/" : root)) {
    gpus = uuids_of(*cards);
  } else if (const auto list = output_of({"nvidia-smi", "-L"}, environment, deadline); list.ok()) {
    gpus = gpus_in_list(list.value());
  }
  const bool is_limited = std::any_of(environment.begin(), environment.end(), [](const std::string& entry) {
    return entry.compare(0, 21, "CUDA_VISIBLE_DEVICES=") == 0;
  });
  return is_limited ? visible_gpus(gpus, value_in(environment, "CUDA_VISIBLE_DEVICES")) : gpus;
}

}  // namespace hvd::launch
