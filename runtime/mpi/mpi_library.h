// MpiLibrary: the functions of an MPI that is found when it is wanted, and never linked. There are three kinds, whose
// handles and constants differ: Open MPI's (3 to 5), MPICH's (MPICH, Intel MPI, MVAPICH, Cray MPI), and that of the
// standard MPI 5.0 (libmpi_abi.so). Which one a file is, its symbols tell.
//
// A thin layer: one method for each MPI function that is used, a Result for its code. Handles are opaque numbers.
// Thread: as the level that MPI was started with allows; here that is one thread at a time (see MpiProcess).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/dyn_lib.h"
#include "runtime/base/result.h"

namespace hvd {

// MPI_Comm and MPI_Request: an int in MPICH, else a pointer.
enum class MpiHandle : std::uintptr_t {};

// MPI_THREAD_...; whose numbers differ.
enum class MpiThreads : int { kSingle = 0, kFunneled = 1, kSerialized = 2, kMultiple = 3 };
const char* name_of(MpiThreads level);

class MpiLibrary {
 public:
  // `path`: the library's file, or a name that the loader knows; empty: one that this process has loaded already and,
  // of several, has started, whatever its name; else the first that the loader finds under the names that MPIs have,
  // MPICH's before Open MPI's where `prefers_mpich`. kNotFound says what was looked for. `scope`: kGlobal where it is
  // to be started.
  static Result<std::unique_ptr<MpiLibrary>> load(const std::string& path, bool prefers_mpich, DynLib::Scope scope);
  // The one that the program has started and not ended; null where there is none. Loads none.
  static Result<std::unique_ptr<MpiLibrary>> find_started();
  virtual ~MpiLibrary() = default;

  // Its file.
  [[nodiscard]] virtual std::string path() const = 0;
  // Its own words, one line: "Open MPI v4.1.4, package: ...". May be asked before MPI is started.
  [[nodiscard]] virtual std::string version_text() const = 0;

  virtual Result<bool> is_initialized() const = 0;
  virtual Result<bool> is_finalized() const = 0;
  // MPI_Init_thread; the level that MPI gives. Blocks until all ranks have called it.
  virtual Result<MpiThreads> start(MpiThreads wanted) = 0;
  // That of an MPI that is started.
  virtual Result<MpiThreads> threads() const = 0;
  // The caller is MPI's thread, which alone may call it below MPI_THREAD_SERIALIZED. Any thread may ask.
  virtual Result<bool> is_main_thread() const = 0;
  // MPI_Finalize. Blocks until all ranks have called it.
  virtual Result<void> finish() = 0;

  [[nodiscard]] virtual MpiHandle world() const = 0;
  // What mpi4py's Comm.py2f() gives.
  virtual Result<MpiHandle> from_fortran(int handle) const = 0;
  virtual Result<int> rank(MpiHandle comm) const = 0;
  virtual Result<int> size(MpiHandle comm) const = 0;
  // MPI_Comm_dup. Blocks until all ranks of `comm` have called it.
  virtual Result<MpiHandle> copy(MpiHandle comm) = 0;
  // MPI_Comm_create_group of these ranks of `comm`, which all of them call and no others. Blocks until they have.
  virtual Result<MpiHandle> subset(MpiHandle comm, std::span<const int> ranks) = 0;
  // MPI_ERRORS_RETURN.
  virtual Result<void> return_errors(MpiHandle comm) = 0;
  virtual Result<void> free(MpiHandle comm) = 0;

  // Bytes; at most kMaxMessageBytes.
  virtual Result<MpiHandle> start_send(const void* data, std::size_t bytes, int to, int tag, MpiHandle comm) = 0;
  virtual Result<MpiHandle> start_receive(void* data, std::size_t bytes, int from, int tag, MpiHandle comm) = 0;
  // MPI_Test: whether it is done; its handle is gone then.
  virtual Result<bool> test(MpiHandle& request) = 0;
  // MPI_Cancel; still to be tested until it is done.
  virtual Result<void> cancel(MpiHandle& request) = 0;

  static constexpr std::size_t kMaxMessageBytes = 1U << 30U;  // a count is an int

 protected:
  MpiLibrary() = default;
  MpiLibrary(const MpiLibrary&) = default;
  MpiLibrary& operator=(const MpiLibrary&) = default;
};

}  // namespace hvd
