// Under which names the loader finds an MPI: Open MPI 3 to 5; what the MPICH initiative agreed on (MPICH, Intel MPI,
// MVAPICH, Cray MPI); Debian's MPICH; the name for compilers.
#pragma once

#include <array>

namespace hvd {

inline constexpr std::array<const char*, 4> kMpiNames = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"};
// Where PMI has started the ranks, as MPICH's mpirun does: the other kind would make each of them a job of its own.
inline constexpr std::array<const char*, 4> kMpiNamesOfPmi = {"libmpi.so.12", "libmpich.so.12", "libmpi.so.40",
                                                              "libmpi.so"};

}  // namespace hvd
