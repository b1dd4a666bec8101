// MpiFile is the shared library of an MPI, and which of the kinds in mpi_abi.h it is.
//
// Thread: any.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/dyn_lib.h"
#include "runtime/base/result.h"

namespace hvd {

enum class MpiKind {
  kOpenMpi,
  kMpich,    // also Intel MPI, MVAPICH, Cray MPI
  kStandard  // the ABI of the standard MPI 5.0, by any vendor: libmpi_abi.so
};

struct MpiFile {
  DynLib library;
  MpiKind kind;
};

// See MpiLibrary::load and MpiLibrary::find_started.
Result<MpiFile> find_mpi_file(const std::string& path, bool prefers_mpich, DynLib::Scope scope);
std::optional<MpiFile> find_started_mpi_file(DynLib::Scope scope);

}  // namespace hvd
