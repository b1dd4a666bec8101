#include "cli/options/manual.h"

#include <algorithm>
#include <map>

#include "launcher/job/nearest_name.h"
#include "runtime/base/text.h"

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
  return text +
         "\nA command's name finds the page about it: hvdrun help top.\nThe options: hvdrun --help (those that most "
         "jobs need), hvdrun --help-all (all).\n";
}

namespace {

// Other words for what pages are about: hvdrun's commands, other launchers, frameworks.
const std::map<std::string, std::string, std::less<>> kOtherWords = {
    {"attach", "clusters"}, {"az", "batch-ai"},         {"batchai", "batch-ai"}, {"bench", "tuning"},
    {"check", "hosts"},     {"exec", "clusters"},       {"files", "clusters"},   {"jax", "fronts"},
    {"ddp", "horovod"},     {"fsdp", "horovod"},        {"pytorch", "horovod"},  {"torch", "horovod"},
    {"join", "elastic"},    {"jsrun", "allocations"},   {"keras", "fronts"},     {"logs", "clusters"},
    {"lsf", "allocations"}, {"manifest", "kubernetes"}, {"mpiexec", "mpi"},      {"mpijob", "kubernetes"},
    {"mpirun", "mpi"},      {"nccl", "gpus"},           {"nodes", "clusters"},   {"pbs", "allocations"},
    {"plan", "first-job"},  {"ps", "clusters"},         {"report", "clusters"},  {"rm", "clusters"},
    {"run", "first-job"},   {"sge", "allocations"},     {"show", "clusters"},    {"srun", "slurm"},
    {"ssh", "hosts"},       {"stop", "clusters"},       {"submit", "clusters"},  {"tensorflow", "fronts"},
    {"timeline", "tuning"}, {"top", "watching"},        {"torchrun", "mpi"},     {"wait", "clusters"},
    {"sparkdl", "spark"},   {"horovodrunner", "spark"}, {"rayexecutor", "ray"},  {"exit-codes", "failures"}};

}  // namespace

Result<std::string> manual_page(const std::string& asked) {
  const std::string word = lowered(asked);
  const auto other = kOtherWords.find(word);
  const std::string& topic = other == kOtherWords.end() ? word : other->second;
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
