// A library with the symbols of an MPI 5.0 (libmpi_abi.so), for what is asked before a message is sent: of which kind
// it is, whether it runs, with which threads, and how large its world is. Messages are refused.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define FAKE_MPI extern "C" __attribute__((visibility("default")))

namespace {

bool is_started = false;
bool is_ended = false;
int level = 0;

constexpr int kRefused = 1;
void* const kWorld = reinterpret_cast<void*>(std::uintptr_t{0x101});

// Not one function calling the other: that of another MPI in the process would be called.
int start(int wanted, int* given) {
  is_started = true;
  level = wanted;
  *given = wanted;
  return 0;
}

}  // namespace

// FAKE_MPI_ABI: another version than 1, as the libraries that are not of this ABI have it.
FAKE_MPI int MPI_Abi_get_version(int* major, int* minor) {
  const char* told = std::getenv("FAKE_MPI_ABI");
  *major = told == nullptr ? 1 : std::atoi(told);
  *minor = 0;
  return 0;
}
FAKE_MPI int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "stand-in MPI 5.0\nof the tests");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}
FAKE_MPI int MPI_Error_string(int, char* text, int* length) {
  std::strcpy(text, "the stand-in has none");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}
FAKE_MPI int MPI_Initialized(int* flag) {
  *flag = is_started ? 1 : 0;
  return 0;
}
FAKE_MPI int MPI_Finalized(int* flag) {
  *flag = is_ended ? 1 : 0;
  return 0;
}
FAKE_MPI int PMPI_Init_thread(int*, char***, int wanted, int* given) {
  return start(wanted, given);
}
FAKE_MPI int MPI_Init_thread(int*, char***, int wanted, int* given) {
  return start(wanted, given);
}
FAKE_MPI int MPI_Query_thread(int* given) {
  *given = level;
  return 0;
}
FAKE_MPI int MPI_Is_thread_main(int* flag) {
  *flag = 1;
  return 0;
}
FAKE_MPI int MPI_Finalize() {
  is_ended = true;
  return 0;
}
FAKE_MPI void* MPI_Comm_fromint(int number) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}
FAKE_MPI int MPI_Comm_rank(void* comm, int* rank) {
  *rank = 1;
  return comm == kWorld ? 0 : kRefused;
}
FAKE_MPI int MPI_Comm_size(void* comm, int* size) {
  *size = 2;
  return comm == kWorld ? 0 : kRefused;
}

#define REFUSED(name)   \
  FAKE_MPI int name() { \
    return kRefused;    \
  }
REFUSED(MPI_Comm_dup)
REFUSED(MPI_Comm_group)
REFUSED(MPI_Group_incl)
REFUSED(MPI_Group_free)
REFUSED(MPI_Comm_create_group)
REFUSED(MPI_Comm_set_errhandler)
REFUSED(MPI_Comm_free)
REFUSED(MPI_Isend)
REFUSED(MPI_Irecv)
REFUSED(MPI_Test)
REFUSED(MPI_Cancel)
