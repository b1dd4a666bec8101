// The names under which the loader finds an MPI: Open MPI 3 to 5; the name that the MPICH initiative agreed on (MPICH,
// Intel MPI, MVAPICH, Cray MPI); Debian's MPICH; the ABI of MPI 5.0; the name for compilers.
#pragma once

#include <array>

namespace hvd {

inline constexpr std::array<const char*, 5> kMpiNames = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12",
                                                         "libmpi_abi.so.1", "libmpi.so"};
// The order if PMI has started the ranks, as MPICH's mpirun does. Open MPI would then make each rank a job of its own.
inline constexpr std::array<const char*, 5> kMpiNamesOfPmi = {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1",
                                                              "libmpi.so.40", "libmpi.so"};

}  // namespace hvd
