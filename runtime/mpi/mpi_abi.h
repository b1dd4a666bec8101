// The binary interfaces of MPI: what the implementations fix differently at compile time, namely the type of handles
// and the values of constants. libhvd loads MPI at run time, so it cannot take these from mpi.h. The interfaces are
// frozen: Open MPI's since version 1.7 (libmpi.so.40 since 3.0), MPICH's by the MPICH ABI Compatibility Initiative
// since 3.1, and that of the standard MPI 5.0.
// tests/unit/runtime/mpi/mpi_abi_test.cpp compares Open MPI's with the machine's mpi.h, if there is one.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/dyn_lib.h"

namespace hvd {

// Open MPI: a handle points at an object; the predefined ones are variables of the library.
struct OpenMpiAbi {
  using Handle = void*;
  static constexpr const char* kWorld = "ompi_mpi_comm_world";
  static constexpr const char* kNoComm = "ompi_mpi_comm_null";
  static constexpr const char* kByte = "ompi_mpi_byte";
  static constexpr const char* kErrorsReturn = "ompi_mpi_errors_return";
  static constexpr std::uintptr_t kIgnoreStatus = 0;
  static constexpr std::array<int, 4> kThreadLevels = {0, 1, 2, 3};  // in the order of MpiThreads
  // Converts Fortran's number of a communicator into a handle; null: the number is the handle.
  static constexpr const char* kFromFortran = "MPI_Comm_f2c";

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
  static constexpr std::array<int, 4> kThreadLevels = {0, 1, 2, 3};
  static constexpr const char* kFromFortran = nullptr;

  static Result<Handle> constant(const DynLib& /*library*/, int value) { return value; }
};

// MPI 5.0: a handle is a pointer; the predefined ones are small numbers.
struct StandardAbi {
  using Handle = void*;
  static constexpr std::uintptr_t kWorld = 0x101;
  static constexpr std::uintptr_t kNoComm = 0x100;
  static constexpr std::uintptr_t kByte = 0x247;
  static constexpr std::uintptr_t kErrorsReturn = 0x143;
  static constexpr std::uintptr_t kIgnoreStatus = 0;
  static constexpr std::array<int, 4> kThreadLevels = {0, 1024, 2048, 4096};
  static constexpr const char* kFromFortran = "MPI_Comm_fromint";

  static Result<Handle> constant(const DynLib& /*library*/, std::uintptr_t value) {
    return reinterpret_cast<Handle>(value);
  }
};

}  // namespace hvd
