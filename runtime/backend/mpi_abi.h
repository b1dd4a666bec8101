// What the two kinds of MPI fix differently at compile time: the type of handles, and the values of the constants that
// are used. They are interfaces that neither changes any more: Open MPI's since version 1.7 (libmpi.so.40 since 3.0),
// MPICH's by the MPICH ABI Compatibility Initiative since 3.1. tests/unit/runtime/backend compares Open MPI's with the
// mpi.h of the machine, where there is one.
#pragma once

#include <cstdint>

#include "runtime/base/dyn_lib.h"

namespace hvd {

// Open MPI: a handle points at an object; those that every program knows are variables of the library.
struct OpenMpiAbi {
  using Handle = void*;
  static constexpr const char* kOwnSymbol = "ompi_mpi_comm_world";
  static constexpr const char* kWorld = "ompi_mpi_comm_world";
  static constexpr const char* kNoComm = "ompi_mpi_comm_null";
  static constexpr const char* kByte = "ompi_mpi_byte";
  static constexpr const char* kErrorsReturn = "ompi_mpi_errors_return";
  static constexpr std::uintptr_t kIgnoreStatus = 0;
  // MPI_Comm_f2c is a function.
  static constexpr bool kNumbersAreFortrans = false;

  static Result<Handle> constant(const DynLib& library, const char* symbol) {
    void* found = library.find_variable(symbol);
    if (found == nullptr) {
      return Error(Code::kNotFound, library.name() + " has no " + symbol);
    }
    return found;
  }
};

// MPICH: a handle is a number, in C as in Fortran.
struct MpichAbi {
  using Handle = int;
  static constexpr int kWorld = 0x44000000;
  static constexpr int kNoComm = 0x04000000;
  static constexpr int kByte = 0x4c00010d;
  static constexpr int kErrorsReturn = 0x54000001;
  static constexpr std::uintptr_t kIgnoreStatus = 1;
  static constexpr bool kNumbersAreFortrans = true;

  static Result<Handle> constant(const DynLib& /*library*/, int value) { return value; }
};

}  // namespace hvd
