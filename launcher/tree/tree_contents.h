// TreeContents reads what is in the files of a Tree, in the form in which it travels. Nodes that lack the same files
// get the same frames, and those that ask soon after one another get them without another read.
//
// Thread: loop only. Blocks for as long as reading a frame's bytes takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "launcher/tree/tree_portion.h"
#include "launcher/tree/tree_scan.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class TreeContents {
 public:
  struct Portion {
    std::shared_ptr<const std::string> frame;  // FileBytes, or TreeList
    std::uint64_t body_bytes = 0;              // of its body, which count against the credit
    FilePlace next;
  };
  using Wanted = std::shared_ptr<const std::vector<std::uint32_t>>;

  explicit TreeContents(const Tree& tree) : tree_(tree) {}

  // Returns the one list that stands for all equal ones; an error where it names what is not in the tree.
  Result<Wanted> wanted(std::vector<std::uint32_t> indices);
  // Reads from `place` on. There is something left there.
  Result<Portion> read(const Wanted& wanted, const FilePlace& place);
  // The tree's list, in so many parts, each made when a node first needs it, and then the same for all.
  [[nodiscard]] std::size_t list_parts() const;
  const Portion& list(std::size_t part);

 private:
  struct Kept {
    Wanted wanted;
    FilePlace place;
    Portion portion;
  };

  const Tree& tree_;
  std::vector<std::weak_ptr<const std::vector<std::uint32_t>>> lists_;  // that a node still wants
  std::vector<Portion> list_;                                           // the parts made so far
  std::deque<Kept> kept_;                                               // the newest first
};

}  // namespace hvd::launch
