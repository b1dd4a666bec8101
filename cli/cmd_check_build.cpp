#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options/job_settings.h"
#include "launcher/engines/mpirun.h"
#include "launcher/process/spawn.h"
#include "launcher/ssh/ssh.h"
#include "launcher/survey/own_stacks.h"
#include "launcher/survey/python_survey.h"
#include "runtime/base/contract.h"
#include "runtime/base/dyn_lib.h"
#include "runtime/base/mpi_names.h"

namespace hvd::cli {
namespace {

// Returns an MPI's own version text; this function is the same in all of them, and needs no MPI_Init.
std::string mpi_version(const DynLib& library) {
  constexpr std::size_t kMaxText = 16384;
  int (*get_version)(char*, int*) = nullptr;
  std::vector<char> text(kMaxText, '\0');
  int length = 0;
  if (!library.take("MPI_Get_library_version", get_version).ok() || get_version(text.data(), &length) != 0) {
    return "";
  }
  const std::string whole(text.data());
  return whole.substr(0, whole.find_first_of(",\n"));
}

// Finds the library that a rank would load here. Where the variable is set it is that one and no other, else the first
// of these names that exists.
Result<DynLib> find_library(const char* variable, std::span<const char* const> names) {
  if (const std::string named = launch::value_in(own_environment(), variable); !named.empty()) {
    auto library = DynLib::open(named, DynLib::Scope::kOwn);
    return library.ok() ? std::move(library) : library.error().with_context(variable);
  }
  Result<DynLib> library = Error(Code::kNotFound, "no name");
  for (const char* name : names) {
    library = DynLib::open(name, DynLib::Scope::kOwn);
    if (library.ok()) {
      break;
    }
  }
  return library;
}

// Returns the version of the MPI that a rank would load here, or says why there is none.
Result<std::string> find_mpi() {
  const auto library = find_library(contract::kMpiLibrary, kMpiNames);
  if (library.ok()) {
    const std::string version = mpi_version(library.value());
    return version.empty() ? library.value().path() : version + ", " + library.value().path();
  }
  return Error(Code::kNotFound, launch::value_in(own_environment(), contract::kMpiLibrary).empty()
                                    ? std::string("no ") + kMpiNames.front() + " nor " + kMpiNames[1] +
                                          " found; install Open MPI or MPICH, or name its file in HVD_MPI_LIBRARY"
                                    : library.error().message());
}

// Does the same for NCCL.
Result<std::string> find_nccl() {
  static constexpr const char* kName[] = {"libnccl.so.2"};
  const auto library = find_library(contract::kNcclLibrary, kName);
  int (*get_version)(int*) = nullptr;
  int version = 0;  // 22703 is 2.27.3
  if (!library.ok()) {
    return Error(Code::kNotFound,
                 (launch::value_in(own_environment(), contract::kNcclLibrary).empty()
                      ? "no libnccl.so.2 found; PyTorch brings one, or name its file in HVD_NCCL_LIBRARY: the package "
                        "nvidia-nccl-cu13 has it in site-packages/nvidia/nccl/lib/libnccl.so.2"
                      : library.error().message()) +
                     "; without, tensors on GPUs go through the hosts' memory");
  }
  HVD_TRY(library.value().take("ncclGetVersion", get_version));
  if (get_version(&version) != 0) {
    return Error(Code::kSystem, library.value().path() + " does not tell its version");
  }
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100) + ", " + library.value().path();
}

void line(bool is_there, const std::string& what, const std::string& otherwise) {
  std::cout << "    [" << (is_there ? "X" : " ") << "] " << what;
  if (!is_there && !otherwise.empty()) {
    std::cout << "  (" << otherwise << ")";
  }
  std::cout << "\n";
}

// Returns what there is in the Python that a job's `python` would be here. python_error says why there is none.
launch::SoftwareSurvey survey_python() {
  static constexpr Duration kPatience = std::chrono::seconds(10);
  launch::SoftwareSurvey software;
  const std::vector<std::string> environment = own_environment();
  for (const char* name : {"python", "python3"}) {
    const auto found = launch::find_program(name, launch::value_in(environment, "PATH"), "");
    if (found.ok()) {
      software.program = found.value();
      launch::ask_python(environment, kPatience, software);
      return software;
    }
  }
  software.python_error = "no 'python' in PATH";
  return software;
}

// Returns the version of a package; empty: it is not installed.
std::string version_of(const launch::SoftwareSurvey& software, std::span<const char* const> names) {
  for (const char* name : names) {
    for (const auto& [package, version] : software.packages) {
      if (package == name) {
        return version;
      }
    }
  }
  return "";
}

void print_frameworks(const launch::SoftwareSurvey& software) {
  const bool has_python = software.python_error.empty();
  std::cout << "\nAvailable Frameworks:\n";
  const auto framework = [&](const std::string& name, const std::string& version, const std::string& package) {
    line(!version.empty(), name + (version.empty() ? "" : " " + version), has_python ? "pip install " + package : "");
  };
  static constexpr const char* kTensorflow[] = {"tensorflow", "tensorflow-cpu", "tensorflow-gpu"};
  static constexpr const char* kKeras[] = {"keras"};
  static constexpr const char* kJax[] = {"jax"};
  framework("TensorFlow", version_of(software, kTensorflow), "tensorflow");
  framework("PyTorch", software.torch, "torch");
  framework("Keras", version_of(software, kKeras), "keras");
  framework("JAX", version_of(software, kJax), "jax");
  if (!has_python) {
    std::cout << "  " << software.python_error << "\n";
    return;
  }
  std::cout << "  in Python " << software.python << ", " << software.program << ", which has "
            << (software.horovod.empty() ? "no horovod; install hvdrun's wheel into it" : "horovod " + software.horovod)
            << "\n";
}

}  // namespace

int print_build() {
  std::cout << "hvdrun v" << HVD_VERSION << ":\n\nWays to reach a node:\n";
  line(true, "local", "");
  line(true, "ssh (" + launch::ssh_version_text() + ")", "");
  line(true, "rsh (any command that carries bytes to a node: --rsh)", "");
  const auto open_mpi = launch::find_open_mpi(own_environment());
  line(open_mpi.ok(), "mpirun (" + (open_mpi.ok() ? open_mpi.value() : "Open MPI") + ": --launcher mpi)",
       open_mpi.ok() ? "" : open_mpi.error().message());
  const launch::SoftwareSurvey software = survey_python();
  print_frameworks(software);
  const auto mpi = find_mpi();
  std::cout << "\nAvailable Controllers:\n";
  line(true, "hvd", "");
  line(true, "Gloo (what scripts for Horovod ask for by this name; here it is the same as hvd)", "");
  line(mpi.ok(), "MPI" + (mpi.ok() ? " (" + mpi.value() + "): ranks that mpirun or srun started" : ""),
       mpi.ok() ? "" : mpi.error().message());
  std::cout << "\nAvailable Tensor Operations:\n";
  line(true, "CPU: shared memory and TCP", "");
  const bool has_driver = DynLib::open("libcuda.so.1", DynLib::Scope::kOwn).ok();
  line(has_driver, "CUDA: tensors on GPUs",
       "no libcuda.so.1 found; install NVIDIA's driver, in a container start it with the GPUs");
  const auto nccl = find_nccl();
  line(nccl.ok(), "NCCL" + (nccl.ok() ? " (" + nccl.value() + ")" : ""), nccl.ok() ? "" : nccl.error().message());
  line(mpi.ok(), mpi.ok() ? "MPI: HOROVOD_CPU_OPERATIONS=mpi, for ranks that mpirun started" : "MPI",
       mpi.ok() ? "" : mpi.error().message());
  std::cout << "\nAvailable Readers of Stacks:\n";
  const std::string reader = launch::find_stack_reader(software.program, own_environment());
  line(!reader.empty(), "py-spy" + (reader.empty() ? "" : " (" + reader + ")") + ": hvdrun stacks, and jobs that stall",
       "pip install py-spy");
  return 0;
}

}  // namespace hvd::cli
