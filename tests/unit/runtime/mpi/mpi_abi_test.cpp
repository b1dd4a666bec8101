// What mpi_abi.h says of Open MPI, against the mpi.h and the library of this machine; built where there is one.
#include "runtime/mpi/mpi_abi.h"

#include <doctest/doctest.h>
#include <mpi.h>

#include "runtime/mpi/mpi_library.h"

namespace hvd {

#ifdef OPEN_MPI
static_assert(MPI_SUCCESS == 0);
static_assert(OpenMpiAbi::kThreadLevels ==
              std::array<int, 4>{MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE});
static_assert(sizeof(MPI_Comm) == sizeof(OpenMpiAbi::Handle) && sizeof(MPI_Request) == sizeof(OpenMpiAbi::Handle));
static_assert(MPI_MAX_ERROR_STRING <= 1024 && MPI_MAX_LIBRARY_VERSION_STRING <= 16384);

TEST_CASE("the constants of Open MPI are those of its header") {
  const auto library = MpiLibrary::load("libmpi.so.40", false, DynLib::Scope::kOwn);
  REQUIRE(library.ok());
  CHECK(library.value()->world() == MpiHandle{reinterpret_cast<std::uintptr_t>(MPI_COMM_WORLD)});
  const auto file = DynLib::open("libmpi.so.40", DynLib::Scope::kOwn);
  REQUIRE(file.ok());
  CHECK(OpenMpiAbi::constant(file.value(), OpenMpiAbi::kNoComm).value() == static_cast<void*>(MPI_COMM_NULL));
  CHECK(OpenMpiAbi::constant(file.value(), OpenMpiAbi::kByte).value() == static_cast<void*>(MPI_BYTE));
  CHECK(OpenMpiAbi::constant(file.value(), OpenMpiAbi::kErrorsReturn).value() == static_cast<void*>(MPI_ERRORS_RETURN));
  CHECK(reinterpret_cast<std::uintptr_t>(MPI_STATUS_IGNORE) == OpenMpiAbi::kIgnoreStatus);
  CHECK(library.value()->version_text().starts_with("Open MPI v"));
}
#else
static_assert(MPI_COMM_WORLD == MpichAbi::kWorld && MPI_COMM_NULL == MpichAbi::kNoComm);
static_assert(MPI_BYTE == MpichAbi::kByte && MPI_ERRORS_RETURN == MpichAbi::kErrorsReturn);
#endif

}  // namespace hvd
