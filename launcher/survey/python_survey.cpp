#include "launcher/survey/python_survey.h"

#include <algorithm>
#include <array>

#include "launcher/process/output_of.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// The versions are read without an import: a framework takes seconds to import, and may start threads.
constexpr const char* kPythonQuestion = R"PY(
import importlib.util, os, re, sys
def say(key, value):
    print("hvdrun.%s %s" % (key, value))
def text_of(name, file):
    try:
        spec = importlib.util.find_spec(name)
        with open(os.path.join(list(spec.submodule_search_locations)[0], file), errors="replace") as stream:
            return stream.read()
    except Exception:
        return ""
def value_of(text, name):
    found = re.search(r"^%s\s*(?::[^=\n]*)?=\s*['\"]([^'\"\n]*)['\"]" % name, text, re.M)
    return found.group(1) if found else ""
say("python", "%d.%d.%d" % sys.version_info[:3])
torch = text_of("torch", "version.py")
if torch:
    say("torch", value_of(torch, "__version__") or "?")
    say("torch_cuda", value_of(torch, "cuda"))
package = text_of("horovod", "__init__.py")
if package:
    ours = "libhvd" in text_of("horovod", "common/_lib.py")
    version = value_of(package, "hvdrun_version" if ours else "__version__") or "?"
    say("horovod", version + ("" if ours else " (not hvdrun's)"))
seen = set()
for folder in sys.path:
    try:
        files = os.listdir(folder or ".")
    except OSError:
        continue
    for file in files:
        found = re.match(r"(.+?)-(\d[^-]*)(-py[\d.]+)?[.](dist-info|egg-info)$", file)
        name = found and re.sub(r"[-_.]+", "-", found.group(1)).lower()
        if found and name not in seen:
            seen.add(name)
            say("package", name + " " + found.group(2))
)PY";

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

bool is_python(std::string_view path) {
  std::string_view rest = base_name(path);
  if (rest.starts_with("python")) {
    rest.remove_prefix(6);
  } else if (rest.starts_with("pypy")) {
    rest.remove_prefix(4);
  } else {
    return false;
  }
  rest.remove_prefix(std::min(rest.find_first_not_of("0123456789."), rest.size()));
  // Distributions add these to the name of a build with debugging, without the interpreter's lock, or with both.
  constexpr std::array<std::string_view, 5> kBuilds = {"", "d", "t", "td", "-dbg"};
  return std::find(kBuilds.begin(), kBuilds.end(), rest) != kBuilds.end();
}

void ask_python(const std::vector<std::string>& environment, Duration patience, SoftwareSurvey& software) {
  const auto answer = output_of({software.program, "-c", kPythonQuestion}, environment, Deadline::after(patience));
  if (answer.ok()) {
    read_python_answer(answer.value(), software);
  } else {
    software.python_error = answer.error().message();
  }
}

void read_python_answer(std::string_view output, SoftwareSurvey& software) {
  const std::array<std::pair<std::string_view, std::string*>, 4> keys = {
      std::pair{std::string_view("python"), &software.python}, std::pair{std::string_view("torch"), &software.torch},
      std::pair{std::string_view("torch_cuda"), &software.torch_cuda},
      std::pair{std::string_view("horovod"), &software.horovod}};
  constexpr std::string_view kMark = "hvdrun.";
  while (!output.empty()) {
    const std::string_view line = trimmed(take_until(output, '\n'));
    if (line.substr(0, kMark.size()) != kMark) {
      continue;
    }
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view key = line.substr(kMark.size(), space - kMark.size());
    if (key == "package") {
      const std::string_view package = trimmed(line.substr(space));
      const std::size_t end = std::min(package.find(' '), package.size());
      software.packages.emplace_back(package.substr(0, end), trimmed(package.substr(end)));
    }
    for (const auto& [name, value] : keys) {
      if (key == name) {
        *value = trimmed(line.substr(space));
      }
    }
  }
  std::sort(software.packages.begin(), software.packages.end());
  if (software.python.empty()) {
    software.python_error = "it does not say its version";
  }
}

}  // namespace hvd::launch
