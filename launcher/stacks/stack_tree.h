// stack_tree() makes one tree of the stacks of all ranks: ranks with equal frames are one branch, and a rank that is
// elsewhere stands alone. Pure.
//
//   [0-3] train.py:40 <module> > train.py:22 main
//     [0-2] train.py:18 step > allreduce 'layer4.weight'
//     [3] data.py:31 __next__
#pragma once

#include <string>
#include <vector>

#include "launcher/stacks/rank_stack.h"

namespace hvd::launch {

// Returns the lines, with the branch of most ranks first in each place.
std::vector<std::string> stack_tree(std::vector<RankStack> stacks);

// Returns the tree below a line that says when and of how many ranks it is. A rank that stands alone among several has
// its host and process beside it. Why several ranks have no stack is said once, after the tree.
std::vector<std::string> stack_report(std::vector<RankStack> stacks, int running);

}  // namespace hvd::launch
