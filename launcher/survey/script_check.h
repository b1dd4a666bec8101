// This finds a script or a working directory that is not there, which the interpreter would otherwise report once per
// rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// Returns the script that a Python command line names ("python -u train.py --lr 1" -> "train.py"). It is empty for
// another program, -m, -c, or standard input. Pure.
std::string python_script_of(const std::vector<std::string>& argv);

// MissingPlace is a directory or a script that ranks could not use.
struct MissingPlace {
  std::string path;
  Error why;
};

// Returns the script if ranks that start in `cwd` could not read it. An empty `cwd`: only an absolute path is looked
// at.
std::optional<MissingPlace> find_missing_script(const std::string& script, const std::string& cwd);

// Returns what is missing of a command line's places: the working directory, or the script in it.
std::optional<MissingPlace> find_missing_place(const std::vector<std::string>& argv, const std::string& cwd);

}  // namespace hvd::launch
