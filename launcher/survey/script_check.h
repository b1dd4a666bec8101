// This finds a script that does not exist, which the interpreter would otherwise report once per rank.
#pragma once

#include <string>
#include <vector>

namespace hvd::launch {

// Returns the script that a Python command line names ("python -u train.py --lr 1" -> "train.py"). It is empty for
// another program, -m, -c, or standard input. Pure.
std::string python_script_of(const std::vector<std::string>& argv);

}  // namespace hvd::launch
