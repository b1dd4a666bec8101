// MpiLibrary is the functions of an MPI library that is loaded when needed and never linked, so that libhvd runs
// without MPI. There are three kinds, whose handles and constants differ: Open MPI's (3 to 5), MPICH's (MPICH, Intel
// MPI, MVAPICH, Cray MPI), and that of the standard MPI 5.0 (libmpi_abi.so). The symbols of a file show which kind it
// is.
//
// It is a thin layer: one method for each MPI function in use, and a Result for its code. Handles are opaque numbers.
// Thread: as the level allows with which MPI was initialised; here that is one thread at a time (see MpiProcess).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/dyn_lib.h"
#include "runtime/base/result.h"

namespace hvd {

// An MPI_Comm or MPI_Request: an int in MPICH, otherwise a pointer.
enum class MpiHandle : std::uintptr_t {};

// MPI_THREAD_...; their numbers differ between MPIs.
enum class MpiThreads : int { kSingle = 0, kFunneled = 1, kSerialized = 2, kMultiple = 3 };
const char* name_of(MpiThreads level);

class MpiLibrary {
 public:
  // Loads an MPI. `path` is the library's file, or a name that the loader knows. If it is empty, an MPI that this
  // process has already loaded is used; of several, the one that is initialised. Otherwise it is the first that the
  // loader finds under the names that MPIs have, MPICH's before Open MPI's if `prefers_mpich`. kNotFound names what was
  // searched for. `scope` is kGlobal if it is to be initialised.
  static Result<std::unique_ptr<MpiLibrary>> load(const std::string& path, bool prefers_mpich, DynLib::Scope scope);
  // Finds the one that the program has initialised and not finalised; null if there is none. It loads none.
  static Result<std::unique_ptr<MpiLibrary>> find_started();
  virtual ~MpiLibrary() = default;

  // The library's file.
  [[nodiscard]] virtual std::string path() const = 0;
  // The library's own version text, one line: "Open MPI v4.1.4, package: ...". It may be asked before MPI is
  // initialised.
  [[nodiscard]] virtual std::string version_text() const = 0;

  virtual Result<bool> is_initialized() const = 0;
  virtual Result<bool> is_finalized() const = 0;
  // Calls MPI_Init_thread and returns the level that MPI grants. Blocks until all ranks have called it.
  virtual Result<MpiThreads> start(MpiThreads wanted) = 0;
  // The thread level of an initialised MPI.
  virtual Result<MpiThreads> threads() const = 0;
  // Whether the caller is MPI's main thread, which alone may call MPI below MPI_THREAD_SERIALIZED. Any thread may ask.
  virtual Result<bool> is_main_thread() const = 0;
  // Calls MPI_Finalize. Blocks until all ranks have called it.
  virtual Result<void> finish() = 0;

  [[nodiscard]] virtual MpiHandle world() const = 0;
  // Converts the number that mpi4py's Comm.py2f() returns.
  virtual Result<MpiHandle> from_fortran(int handle) const = 0;
  virtual Result<int> rank(MpiHandle comm) const = 0;
  virtual Result<int> size(MpiHandle comm) const = 0;
  // Calls MPI_Comm_dup. Blocks until all ranks of `comm` have called it.
  virtual Result<MpiHandle> copy(MpiHandle comm) = 0;
  // Calls MPI_Comm_create_group for these ranks of `comm`; exactly these ranks call it. Blocks until they have.
  virtual Result<MpiHandle> subset(MpiHandle comm, std::span<const int> ranks) = 0;
  // Sets the error handler MPI_ERRORS_RETURN.
  virtual Result<void> return_errors(MpiHandle comm) = 0;
  virtual Result<void> free(MpiHandle comm) = 0;

  // These start a message of bytes; at most kMaxMessageBytes.
  virtual Result<MpiHandle> start_send(const void* data, std::size_t bytes, int to, int tag, MpiHandle comm) = 0;
  virtual Result<MpiHandle> start_receive(void* data, std::size_t bytes, int from, int tag, MpiHandle comm) = 0;
  // Calls MPI_Test: whether it is done, and then its handle is invalid.
  virtual Result<bool> test(MpiHandle& request) = 0;
  // Calls MPI_Cancel; the request must still be tested until it is done.
  virtual Result<void> cancel(MpiHandle& request) = 0;

  static constexpr std::size_t kMaxMessageBytes = 1U << 30U;  // MPI's counts are of type int

 protected:
  MpiLibrary() = default;
  MpiLibrary(const MpiLibrary&) = default;
  MpiLibrary& operator=(const MpiLibrary&) = default;
};

}  // namespace hvd
