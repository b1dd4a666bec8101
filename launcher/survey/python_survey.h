// What a Python has: its version, frameworks, packages, and whether its `horovod` is ours. The Python itself is asked,
// and imports none of them, since a framework takes seconds to import, and may start threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/check_messages.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// True for a path whose name is one of Python's: python3.11, pypy, python3.13t, but not python_train.sh.
bool is_python(std::string_view path);
// Asks the Python that software.program names, and fills in what it says, or python_error. It blocks until the Python
// has ended, at most for `patience`.
void ask_python(const std::vector<std::string>& environment, Duration patience, SoftwareSurvey& software);
// Reads the lines "hvdrun.KEY VALUE" of the questioned Python, among whatever else it printed. Pure.
void read_python_answer(std::string_view output, SoftwareSurvey& software);

}  // namespace hvd::launch
