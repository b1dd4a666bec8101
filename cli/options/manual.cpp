#include "cli/options/manual.h"

#include <algorithm>
#include <map>

#include "launcher/job/nearest_name.h"

namespace hvd::cli {

std::string_view manual_title(const ManualPage& page) {
  std::string_view line = page.text.substr(0, page.text.find('\n'));
  line.remove_prefix(std::min(line.find_first_not_of("# "), line.size()));
  return line;
}

std::string manual_topics() {
  std::size_t width = 0;
  for (const ManualPage& page : manual_pages()) {
    width = std::max(width, page.topic.size());
  }
  std::string text = "usage: hvdrun help TOPIC\n\nTopics, in the order in which one needs them:\n";
  for (const ManualPage& page : manual_pages()) {
    text += "  " + std::string(page.topic) + std::string(width + 2 - page.topic.size(), ' ') +
            std::string(manual_title(page)) + "\n";
  }
  return text + "\nThe options: hvdrun --help (the first week's), hvdrun --help-all (all of them).\n";
}

namespace {

// Other words for what pages are about.
const std::map<std::string, std::string, std::less<>> kOtherWords = {
    {"az", "batch-ai"},  {"batchai", "batch-ai"},  {"jsrun", "allocations"}, {"lsf", "allocations"},
    {"mpiexec", "mpi"},  {"mpijob", "kubernetes"}, {"pbs", "allocations"},   {"srun", "slurm"},
    {"torchrun", "mpi"}, {"mpirun", "mpi"}};

}  // namespace

Result<std::string> manual_page(const std::string& asked) {
  const auto other = kOtherWords.find(asked);
  const std::string& topic = other == kOtherWords.end() ? asked : other->second;
  std::vector<std::string> names;
  std::vector<const ManualPage*> beginning;
  for (const ManualPage& page : manual_pages()) {
    if (page.topic == topic) {
      return std::string(page.text);
    }
    if (!topic.empty() && page.topic.starts_with(topic)) {
      beginning.push_back(&page);
    }
    names.emplace_back(page.topic);
  }
  if (beginning.size() == 1) {
    return std::string(beginning.front()->text);
  }
  const std::string near = launch::nearest_name(topic, names);
  return Error(Code::kInvalid, "the manual has no page '" + topic + "'" +
                                   (near.empty() ? "" : "; did you mean '" + near + "'?") +
                                   (near.empty() ? "; " : " ") + "'hvdrun help' lists the topics");
}

}  // namespace hvd::cli
