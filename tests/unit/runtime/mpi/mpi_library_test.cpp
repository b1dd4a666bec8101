// Which MPI is taken, by a stand-in whose name is none of those that are looked for.
#include "runtime/mpi/mpi_library.h"

#include <cstdlib>

#include <doctest/doctest.h>

#include "runtime/mpi/mpi_job.h"

namespace hvd::mpi_library_test {

// Only one: what a process has started stays so.
TEST_CASE("an MPI that the program has started is found under any name, and asked in the terms of its ABI") {
  const auto none = MpiLibrary::find_started();
  REQUIRE(none.ok());
  CHECK(none.value() == nullptr);
  CHECK(find_started_world().value().size == 0);

  const auto loaded = MpiLibrary::load(FAKE_MPI_LIBRARY, false, DynLib::Scope::kStays);
  REQUIRE(loaded.ok());
  MpiLibrary& programs = *loaded.value();
  CHECK(MpiLibrary::find_started().value() == nullptr);
  CHECK(programs.start(MpiThreads::kSerialized).value() == MpiThreads::kSerialized);

  const auto found = MpiLibrary::find_started();
  REQUIRE(found.ok());
  REQUIRE(found.value() != nullptr);
  CHECK(found.value()->path() == FAKE_MPI_LIBRARY);
  CHECK(found.value()->threads().value() == MpiThreads::kSerialized);
  CHECK(found.value()->rank(found.value()->world()).value() == 1);
  CHECK(found.value()->from_fortran(0x101).value() == found.value()->world());
  CHECK(found.value()->from_fortran(0x100).error().code() == Code::kInvalid);
  const MpiWorld world = find_started_world().value();
  CHECK(world.size == 2);
  CHECK(world.name == std::string("stand-in MPI 5.0 (") + FAKE_MPI_LIBRARY + ")");
  // Before those that are only installed, or loaded.
  CHECK(MpiLibrary::load("", false, DynLib::Scope::kOwn).value()->path() == FAKE_MPI_LIBRARY);

  CHECK(programs.finish().ok());
  CHECK(MpiLibrary::find_started().value() == nullptr);
}

TEST_CASE("an MPI of an unknown ABI is refused by its file, not called") {
  ::setenv("FAKE_MPI_ABI", "-1", 1);
  const auto refused = MpiLibrary::load(FAKE_MPI_LIBRARY, false, DynLib::Scope::kOwn);
  ::unsetenv("FAKE_MPI_ABI");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Code::kNotFound);
  CHECK(refused.error().message().find(std::string(FAKE_MPI_LIBRARY) + " is an MPI of an unknown kind") !=
        std::string::npos);
}

TEST_CASE("a library that is not there is told with the loader's words, and one that is none with what it lacks") {
  const auto absent = MpiLibrary::load("/nowhere/libmpi.so", false, DynLib::Scope::kOwn);
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.error().message().find("/nowhere/libmpi.so") != std::string::npos);
  const auto other = MpiLibrary::load("libm.so.6", false, DynLib::Scope::kOwn);
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().message().ends_with("libm.so.6 has no MPI_Get_library_version"));
}

}  // namespace hvd::mpi_library_test
