#include "launcher/tree/tree_contents.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {
namespace {

// 16 MiB of frames, in which nodes may be apart.
constexpr std::size_t kMostKept = 64;
constexpr std::size_t kListEntries = 4096;

}  // namespace

Result<TreeContents::Wanted> TreeContents::wanted(std::vector<std::uint32_t> indices) {
  for (const std::uint32_t index : indices) {
    if (index >= tree_.entries.size() || tree_.entries[index].kind != TreeEntry::Kind::kFile) {
      return Error(Code::kProtocol, "its agent wants a file that is not in the folder");
    }
  }
  std::erase_if(lists_, [](const auto& list) { return list.expired(); });
  for (const auto& known : lists_) {
    if (Wanted list = known.lock(); *list == indices) {
      return list;
    }
  }
  Wanted list = std::make_shared<const std::vector<std::uint32_t>>(std::move(indices));
  lists_.push_back(list);
  return list;
}

Result<TreeContents::Portion> TreeContents::read(const Wanted& wanted, const FilePlace& place) {
  for (const Kept& kept : kept_) {
    if (kept.wanted == wanted && kept.place == place) {
      return kept.portion;
    }
  }
  HVD_TRY_ASSIGN(const FilePortion read, read_portion(tree_.root, tree_.entries, *wanted, place, wanted->size()));
  const Portion portion{std::make_shared<const std::string>(agent_frame(AgentMessage::kFileBytes, read.body)),
                        read.body.size(), read.next};
  kept_.push_front({wanted, place, portion});
  if (kept_.size() > kMostKept) {
    kept_.pop_back();
  }
  return portion;
}

std::size_t TreeContents::list_parts() const {
  return std::max<std::size_t>(1, (tree_.entries.size() + kListEntries - 1) / kListEntries);
}

const TreeContents::Portion& TreeContents::list(std::size_t part) {
  while (list_.size() <= part) {
    const std::size_t begin = list_.size() * kListEntries;
    const std::size_t end = std::min(tree_.entries.size(), begin + kListEntries);
    TreeList list;
    list.is_last = end == tree_.entries.size();
    list.entries.assign(tree_.entries.begin() + static_cast<std::ptrdiff_t>(begin),
                        tree_.entries.begin() + static_cast<std::ptrdiff_t>(end));
    list.proofs.assign(tree_.proofs.begin() + static_cast<std::ptrdiff_t>(begin),
                       tree_.proofs.begin() + static_cast<std::ptrdiff_t>(end));
    const std::string body = list.encode();
    list_.push_back({std::make_shared<const std::string>(agent_frame(AgentMessage::kTreeList, body)), body.size(), {}});
  }
  return list_[part];
}

}  // namespace hvd::launch
