#include "launcher/survey/own_software.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <fstream>

#include "launcher/process/output_of.h"
#include "launcher/process/own_process.h"
#include "launcher/process/spawn.h"
#include "launcher/survey/python_survey.h"
#include "launcher/survey/script_check.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Each program gets this share of the time, so that one that hangs does not take it from the others.
constexpr int kShares = 3;

FolderSurvey folder_at(const std::string& path, int mode) {
  FolderSurvey folder;
  folder.path = path;
  struct stat info{};
  struct statvfs space{};
  if (::stat(path.c_str(), &info) != 0 || (S_ISDIR(info.st_mode) && ::access(path.c_str(), mode) != 0) ||
      ::statvfs(path.c_str(), &space) != 0) {
    folder.error = Error::from_errno("'" + path + "'").message();
  } else if (!S_ISDIR(info.st_mode)) {
    folder.error = "'" + path + "' is no directory";
  } else {
    folder.free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  }
  return folder;
}

std::string folder_of_executable() {
  const auto program = own_program();
  const std::string path = program.ok() ? program.value() : "";
  return path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
}

void take_program(const SurveyRequest& request, const std::vector<std::string>& environment, Duration patience,
                  SoftwareSurvey& software) {
  const std::vector<std::string>& names = request.programs;
  for (const std::string& name : names) {
    const auto found = find_program(name, value_in(environment, "PATH"), request.start.cwd);
    if (found.ok()) {
      software.program = found.value();
      break;
    }
    // PATH itself would hide what is wrong behind lines of it.
    const bool is_path = name.find('/') != std::string::npos;
    software.program_error = is_path ? found.error().message() : "no '" + names.front() + "' in PATH";
  }
  if (software.program.empty()) {
    return;
  }
  software.program_error.clear();
  if (is_python(software.program)) {
    ask_python(environment, patience, software);
  }
}

// Reads the driver's own files, where there is no nvidia-smi.
std::string driver_of_files() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ..."
  constexpr std::string_view kMark = "Module";
  const auto mark = line.find(kMark);
  if (mark == std::string::npos) {
    return "";
  }
  const auto first = line.find_first_of("0123456789", mark);
  return first == std::string::npos ? "" : line.substr(first, line.find(' ', first) - first);
}

void take_gpus(const std::vector<std::string>& own, Duration patience, SoftwareSurvey& software) {
  const auto answer =
      output_of({"nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"}, own,
                Deadline::after(patience));
  if (answer.ok()) {
    read_gpu_answer(answer.value(), software);
  }
  if (software.driver.empty()) {
    software.driver = driver_of_files();
  }
}

}  // namespace

void read_gpu_answer(std::string_view output, SoftwareSurvey& software) {
  while (!output.empty()) {
    const std::string_view line = trimmed(take_until(output, '\n'));
    const auto last = line.rfind(',');
    const auto middle = last == std::string_view::npos || last == 0 ? last : line.rfind(',', last - 1);
    if (last == std::string_view::npos || middle == std::string_view::npos || middle == last) {
      continue;
    }
    GpuSurvey gpu;
    gpu.name = trimmed(line.substr(0, middle));
    const std::string_view memory = trimmed(line.substr(middle + 1, last - middle - 1));
    std::uint64_t mebibytes = 0;
    const auto parsed = std::from_chars(memory.data(), memory.data() + memory.size(), mebibytes);
    if (parsed.ec == std::errc() && mebibytes < (std::uint64_t{1} << 40U)) {
      gpu.memory = mebibytes << 20U;
    }
    software.driver = trimmed(line.substr(last + 1));
    software.gpus.push_back(std::move(gpu));
  }
}

std::string mpirun_version(std::string_view output) {
  const std::string_view line = trimmed(take_until(output, '\n'));
  constexpr std::string_view kOpenMpi = "(Open MPI) ";
  const auto mark = line.find(kOpenMpi);
  return mark == std::string_view::npos ? std::string(line)
                                        : "Open MPI " + std::string(trimmed(line.substr(mark + kOpenMpi.size())));
}

SoftwareSurvey own_software(const SurveyRequest& request, const std::vector<std::string>& environment,
                            const std::vector<std::string>& own) {
  const Duration patience = std::chrono::milliseconds(request.patience_ms) / kShares;
  SoftwareSurvey software;
  const std::string& cwd = request.start.cwd;
  software.cache = folder_at(folder_of_executable(), X_OK);
  software.directory = cwd.empty() ? software.cache : folder_at(cwd, X_OK);  // --sync brings the folder to the cache
  if (software.directory.error.empty() && !cwd.empty() && ::chdir(cwd.c_str()) != 0) {
    software.directory.error = Error::from_errno("'" + cwd + "'").message();
  }
  const std::string temporary = value_in(own, "TMPDIR");
  software.temporary = folder_at(temporary.empty() ? "/tmp" : temporary, W_OK);
  take_program(request, environment, patience, software);
  software.script = python_script_of(request.start.argv);
  const bool has_directory = software.directory.error.empty();  // without it a script in it is missing too
  if (const auto missing = find_missing_script(software.script, has_directory ? cwd : "")) {
    software.script_error = missing->why.message();
  }
  take_gpus(own, patience, software);
  if (request.wants_mpirun) {
    const auto version = output_of({"mpirun", "--version"}, environment, Deadline::after(patience));
    software.mpirun = version.ok() ? mpirun_version(version.value()) : "";
    software.mpirun_error = version.ok()                                ? ""
                            : version.error().code() == Code::kNotFound ? "no 'mpirun' in PATH"
                                                                        : version.error().message();
  }
  return software;
}

}  // namespace hvd::launch
