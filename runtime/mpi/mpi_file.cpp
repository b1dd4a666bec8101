#include "runtime/mpi/mpi_file.h"

#include "runtime/base/mpi_names.h"

namespace hvd {
namespace {

// The functions called here may be called before MPI is initialised, and are the same in all kinds.
bool is_true(const DynLib& library, const char* question) {
  int (*ask)(int*) = nullptr;
  int answer = 0;
  return library.take(question, ask).ok() && ask(&answer) == 0 && answer != 0;
}

// MPICH's libmpi.so has this function too, and reports -1.
bool has_standard_abi(const DynLib& library) {
  int (*ask)(int*, int*) = nullptr;
  int major = 0;
  int minor = 0;
  return library.take("MPI_Abi_get_version", ask).ok() && ask(&major, &minor) == 0 && major > 0;
}

Result<MpiKind> kind_of(const DynLib& library) {
  if (library.find("MPI_Get_library_version") == nullptr) {
    return Error(Code::kNotFound, library.name() + " has no MPI_Get_library_version");
  }
  if (has_standard_abi(library)) {
    return MpiKind::kStandard;
  }
  if (library.find("ompi_mpi_comm_world") != nullptr) {
    return MpiKind::kOpenMpi;
  }
  // This function is MPI_DUP_FN in programs that were compiled with MPICH's mpi.h.
  if (library.find("MPIR_Dup_fn") != nullptr) {
    return MpiKind::kMpich;
  }
  return Error(Code::kNotFound,
               library.path() +
                   " is an MPI of an unknown kind; known are Open MPI, MPICH and its kin, and the ABI of "
                   "MPI 5.0 (libmpi_abi.so); name one in HVD_MPI_LIBRARY");
}

Result<MpiFile> file_of(Result<DynLib> library) {
  HVD_TRY_ASSIGN(DynLib opened, std::move(library));
  HVD_TRY_ASSIGN(const MpiKind kind, kind_of(opened));
  return MpiFile{std::move(opened), kind};
}

// Finds the first MPI that the process has loaded, whatever its name: Cray's names differ from compiler to compiler.
// Tools that sit between a program and its MPI define the MPI_ functions too, but not the PMPI_ ones, which they call.
std::optional<MpiFile> find_loaded_mpi(DynLib::Scope scope, bool is_started) {
  for (const std::string& name : DynLib::loaded_names()) {
    const auto library = DynLib::find_loaded(name, DynLib::Scope::kOwn);
    if (!library.ok() || !library.value().defines("PMPI_Init_thread") || !kind_of(library.value()).ok()) {
      continue;
    }
    const bool runs = is_true(library.value(), "MPI_Initialized") && !is_true(library.value(), "MPI_Finalized");
    if (runs || !is_started) {
      auto file = file_of(DynLib::find_loaded(name, scope));
      if (file.ok()) {
        return std::move(file).value();
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Result<MpiFile> find_mpi_file(const std::string& path, bool prefers_mpich, DynLib::Scope scope) {
  if (!path.empty()) {
    return file_of(DynLib::open(path, scope));
  }
  // An MPI that the process has loaded comes first: a second one would be independent of it, and unknown to mpirun.
  if (auto started = find_loaded_mpi(scope, true)) {
    return std::move(*started);
  }
  const auto& names = prefers_mpich ? kMpiNamesOfPmi : kMpiNames;
  for (const char* name : names) {
    if (auto loaded = file_of(DynLib::find_loaded(name, scope)); loaded.ok()) {
      return loaded;
    }
  }
  if (auto loaded = find_loaded_mpi(scope, false)) {
    return std::move(*loaded);
  }
  std::string tried;
  for (const char* name : names) {
    auto opened = file_of(DynLib::open(name, scope));
    if (opened.ok()) {
      return opened;
    }
    tried += (tried.empty() ? "" : "; ") + opened.error().message();
  }
  return Error(Code::kNotFound, tried);
}

std::optional<MpiFile> find_started_mpi_file(DynLib::Scope scope) {
  return find_loaded_mpi(scope, true);
}

}  // namespace hvd
