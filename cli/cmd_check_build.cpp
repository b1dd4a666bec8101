#include <iostream>
#include <string>

#include <dlfcn.h>

#include "cli/commands.h"
#include "cli/job_settings.h"
#include "launcher/transport/mpirun.h"
#include "launcher/transport/ssh.h"

namespace hvd::cli {
namespace {

bool can_load(const char* library) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) {
    ::dlclose(handle);
  }
  return handle != nullptr;
}

void line(bool is_there, const std::string& what, const std::string& otherwise) {
  std::cout << "    [" << (is_there ? "X" : " ") << "] " << what;
  if (!is_there && !otherwise.empty()) {
    std::cout << "  (" << otherwise << ")";
  }
  std::cout << "\n";
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
  std::cout << "\nAvailable Controllers:\n";
  line(true, "hvd", "");
  std::cout << "\nAvailable Tensor Operations:\n";
  line(true, "CPU: shared memory and TCP", "");
  line(false, "NCCL",
       can_load("libnccl.so.2") ? "libnccl.so.2 is here, but this version has no NCCL backend yet"
                                : "this version has no NCCL backend yet; no libnccl.so.2 found either");
  line(false, "MPI",
       can_load("libmpi.so.40") ? "libmpi.so.40 is here, but this version has no MPI backend yet"
                                : "this version has no MPI backend yet; no libmpi.so.40 found either");
  std::cout.flush();
  return 0;
}

}  // namespace hvd::cli
