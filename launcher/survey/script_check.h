// Finds the mistake that would otherwise be reported once per rank, by the interpreter: a script that is not there.
#pragma once

#include <string>
#include <vector>

namespace hvd::launch {

// The script that a Python command line names ("python -u train.py --lr 1" -> "train.py"), or empty: another program,
// -m, -c, or standard input. Pure.
std::string python_script_of(const std::vector<std::string>& argv);

}  // namespace hvd::launch
