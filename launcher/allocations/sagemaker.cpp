// SageMaker training jobs: every host runs the same program, and hvdrun runs on the first of them alone.
#include <algorithm>

#include "launcher/allocations/node_words.h"
#include "launcher/job/text_file.h"
#include "launcher/jobfile/document.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostDescription = std::size_t{1} << 20U;

Result<std::vector<std::string>> texts_of(const Allocation& found, const std::string& variable, const DocValue* list) {
  std::vector<std::string> texts;
  if (list != nullptr && list->kind == DocValue::Kind::kList) {
    for (const DocValue& item : list->items) {
      texts.push_back(item.text);
    }
  }
  return texts.empty() ? Result<std::vector<std::string>>(half_known(found, variable + " has no list of hosts"))
                       : texts;
}

}  // namespace

FoundAllocation find_sagemaker(const Surroundings& here) {
  Allocation found;
  found.engine = "SageMaker";
  found.job = value_in(here.environment, "TRAINING_JOB_NAME");
  found.slots_from = "SM_HOSTS";
  std::string text = value_in(here.environment, "SM_HOSTS");
  std::string own = value_in(here.environment, "SM_CURRENT_HOST");
  if (text.empty() && found.job.empty()) {
    return std::optional<Allocation>();
  }
  if (text.empty()) {  // a container without SageMaker's own toolkit
    found.slots_from = "resourceconfig.json";
    auto read = read_text_file(here.cloud_file, "TRAINING_JOB_NAME names a job, but its description", kMostDescription);
    if (!read.ok()) {
      return half_known(found, read.error().message());
    }
    text = std::move(read).value();
  }
  auto document = parse_json_document(text, found.slots_from);
  if (!document.ok()) {
    return half_known(found, document.error().message());
  }
  const DocValue& root = document.value();
  const bool is_list = root.kind == DocValue::Kind::kList;
  HVD_TRY_ASSIGN(std::vector<std::string> names,
                 texts_of(found, found.slots_from, is_list ? &root : root.find("hosts")));
  if (const DocValue* current = root.find("current_host"); own.empty() && current != nullptr) {
    own = current->text;
  }
  if (own.empty()) {
    return half_known(found, "SM_CURRENT_HOST, which tells its hosts apart, is not set");
  }
  std::sort(names.begin(), names.end());
  if (std::find(names.begin(), names.end(), own) == names.end()) {
    return half_known(found, found.slots_from + " does not name SM_CURRENT_HOST, " + shown_text(own));
  }
  if (own != names.front()) {
    return half_known(found, "SM_CURRENT_HOST is " + shown_text(own) + ": run hvdrun on " + names.front() +
                                 " alone, and it starts the ranks on all");
  }
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, found.slots_from, names));
  HVD_TRY_ASSIGN(const std::optional<int> gpus, number_in(found, here, "SM_NUM_GPUS"));
  if (gpus.value_or(0) > 0) {
    for (HostSpec& host : found.hosts) {
      host.slots = *gpus;
    }
    found.slots_from = "SM_NUM_GPUS";
  }
  Surroundings named = here;
  named.own_names.push_back(own);
  return complete(std::move(found), named, "SM_HOSTS");
}

}  // namespace hvd::launch
